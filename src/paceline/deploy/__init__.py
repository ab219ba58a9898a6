"""Write it down: a plan becomes launch files, as text."""

from paceline.deploy.files import DeployFile, Deployment
from paceline.deploy.settings import DeploySettings
from paceline.deploy.targets import Target, deploy, measurements, targets

__all__ = [
    "DeployFile",
    "DeploySettings",
    "Deployment",
    "Target",
    "deploy",
    "measurements",
    "targets",
]
