"""What launchers and managed services call a device and a provider."""

from __future__ import annotations

from paceline.shipped import shipped_rows


def word_of_device(device: str, column: str) -> str:
    """A provider's or launcher's own word for a device; empty where none is known.

    Args:
        device: ``Device.name``.
        column: Of ``accelerators.csv``, such as ``skypilot``.

    >>> word_of_device("A100 SXM4 80GB", "skypilot"), word_of_device("TPU v2", "skypilot")
    ('A100-80GB', '')
    """
    for row in shipped_rows("catalog", "accelerators.csv"):
        if row["device_has"].lower() in device.lower() and row[column]:
            return row[column]
    return ""


def skypilot_cloud(cloud: str) -> str:
    """SkyPilot's word for a provider; empty where it does not launch there.

    >>> skypilot_cloud("oracle-cloud"), skypilot_cloud("coreweave")
    ('oci', '')
    """
    rows = shipped_rows("catalog", "launcher_clouds.csv")
    return next((row["skypilot"] for row in rows if row["cloud"] == cloud), "")
