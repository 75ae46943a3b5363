// Shows the values of each curve that are nearest to the pointer.
const SVG = "http://www.w3.org/2000/svg";
for (const chart of document.querySelectorAll(".chart")) {
  const curves = JSON.parse(chart.dataset.curves);
  const svg = chart.querySelector("svg");
  const tip = chart.appendChild(document.createElement("div"));
  const dots = svg.appendChild(document.createElementNS(SVG, "g"));
  tip.className = "tip";
  tip.hidden = true;

  const show = (event) => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * scale;
    const distance = (point) => Math.abs(point[0] - x);
    dots.replaceChildren();
    tip.replaceChildren();
    for (const { name, colour, points } of curves) {
      const nearest = points.reduce((a, b) => distance(b) < distance(a) ? b : a);
      const [atX, atY, step, text] = nearest;
      const dot = dots.appendChild(document.createElementNS(SVG, "circle"));
      for (const [key, value] of [["cx", atX], ["cy", atY], ["r", 3.5]]) {
        dot.setAttribute(key, value);
      }
      dot.style.fill = colour;
      const row = tip.appendChild(document.createElement("div"));
      const value = document.createElement("b");
      value.textContent = text;
      value.style.borderColor = colour;
      row.append(value, ` ${name}, step ${step}`);
    }
    tip.hidden = false;
    const left = event.clientX - box.left;
    const isRight = left > box.width / 2;
    tip.style.left = isRight ? "" : `${left + 12}px`;
    tip.style.right = isRight ? `${box.width - left + 12}px` : "";
  };
  const hide = () => {
    tip.hidden = true;
    dots.replaceChildren();
  };
  chart.addEventListener("pointermove", show);
  chart.addEventListener("pointerdown", show);
  chart.addEventListener("pointerleave", hide);
}
