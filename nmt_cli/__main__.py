"""``python -m nmt_cli``, to start workers with torchrun: ``torchrun ... -m nmt_cli train``."""

from nmt_cli.cli import main

if __name__ == "__main__":
    main(prog_name="nmt-cli")
