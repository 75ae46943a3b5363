"""The results as JUnit's XML, which servers of pipelines show: a test for each check."""

from xml.etree import ElementTree

from nmt_cli.commands.model_checks.results import HEADINGS, Results

NOT_IN_XML = dict.fromkeys([0xFFFE, 0xFFFF], "\ufffd")  # beside control characters


def as_junit(results: Results) -> str:
    """Return the XML, where a check fails if a limit is not met, with its worst lines."""
    root = ElementTree.Element("testsuites", name="nmt-cli check")
    for group, rows in results.groups().items():
        counts = {
            "name": group,
            "tests": f"{len(rows)}",
            "failures": f"{sum(bool(row.problems) for row in rows)}",
            "skipped": f"{sum(row.value is None for row in rows)}",
        }
        suite = ElementTree.SubElement(root, "testsuite", counts)
        for row in rows:
            name = {"name": row.label, "classname": group}
            case = ElementTree.SubElement(suite, "testcase", name)
            if row.value is None:
                ElementTree.SubElement(case, "skipped", message="nothing to check")
            if row.problems:
                failure = ElementTree.SubElement(case, "failure", message="; ".join(row.problems))
                failure.text = "\n".join(row.shown_examples())
            figures = dict(zip(HEADINGS, row.cells(), strict=True))
            shown = (f"{heading} {text}" for heading, text in figures.items() if heading and text)
            ElementTree.SubElement(case, "system-out").text = ", ".join(shown)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode", xml_declaration=True)
    return text.translate(NOT_IN_XML)
