"""``python -m nmt_cli``, for who starts workers by torchrun: ``torchrun ... -m nmt_cli train``."""

from nmt_cli.cli import main

if __name__ == "__main__":
    main(prog_name="nmt-cli")
