"""Profiles of AWS, which the drivers of stores do not read.

Commands that open no table import this module, too, so that it imports no driver.
"""

import os
import shlex

from incremental_assets.core.errors import ConfigurationError


def expect_no_profile(url: str) -> None:
    """Raises ConfigurationError where a profile of AWS is set, and nothing else by which S3 is reached.

    Neither obstore nor delta-rs reads it: they would take the role of the machine in its place, and say nothing.
    """
    profile = os.environ.get("AWS_PROFILE")
    others = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE")
    if profile and url.startswith(("s3://", "s3a://")) and not any(map(os.environ.get, others)):
        command = f"aws configure export-credentials --profile {shlex.quote(profile)} --format env"
        raise ConfigurationError(
            f'AWS_PROFILE is {profile!r}, and profiles of AWS are not read for {url}. Set its keys, as eval "$({command})" does, or unset '
            f"AWS_PROFILE to use the role of this machine."
        )
