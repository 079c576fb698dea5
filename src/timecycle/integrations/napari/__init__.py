"""The napari plugin. Its manifest is timecycle/napari.yaml; only napari imports the modules of this package."""


def activate(context: object) -> None:
    """Offer our tracker to napari-deeplabcut, where it is installed; napari calls this before our first command."""
    from timecycle.integrations.napari.deeplabcut_tracking import is_installed, register_tracker  # noqa: PLC0415

    if is_installed():
        register_tracker()
