"""Says what an error of an object store means, in one line, and what to do."""

import re

# The key is a part of a delta-rs error message, the value tells the user what to do. The first one that is found counts.
_PLAIN = "The store's address is an http:// one: AWS_ALLOW_HTTP=true permits that for S3, and AZURE_ALLOW_HTTP=true for Azure."
_REMEDIES = {
    "URL scheme is not allowed": _PLAIN,  # delta-rs says so, and obstore the next one
    "source: BadScheme": _PLAIN,
    "Account must be specified": "Set AZURE_STORAGE_ACCOUNT_NAME.",
    "Invalid Access Key": "AZURE_STORAGE_ACCOUNT_KEY is no key of an account, which is a text in Base64.",
    "ContainerNotFound": "Make the container, or correct {address} or AZURE_STORAGE_ACCOUNT_NAME.",
    "AuthenticationFailed": "Correct AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_SAS_TOKEN.",
    "AuthorizationFailure": "Correct AZURE_STORAGE_ACCOUNT_KEY, or allow AZURE_STORAGE_SAS_TOKEN to {rights} there.",
    "AuthorizationPermissionMismatch": "Allow the credentials in AZURE_* to {rights} there.",
    "169.254.169.254/metadata/identity": (
        "No credentials were found: set AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_SAS_TOKEN, beside AZURE_STORAGE_ACCOUNT_NAME."
    ),
    "computeMetadata": "No credentials were found: GOOGLE_SERVICE_ACCOUNT names the file with the key of a service account.",
    "Missing AccessKeyId": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    "169.254.169.254": "No credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    "ExpiredToken": "Set new keys in AWS_*, and start this process anew.",
    "NoSuchBucket": "Make the bucket, or correct {address} or AWS_ENDPOINT_URL.",
    "InvalidAccessKeyId": "Correct AWS_ACCESS_KEY_ID.",
    "SignatureDoesNotMatch": "Correct AWS_SECRET_ACCESS_KEY.",
    "InvalidObjectState": "Restore the object from its archive.",
    "AccessDenied": "Allow the credentials in AWS_* to {rights} there.",
    "403 Forbidden": "Allow the credentials in AWS_* to {rights} there.",
    "error sending request": "Is that the store's address? AWS_ENDPOINT_URL names it, for Azure AZURE_STORAGE_ENDPOINT.",
}


def reason(
    error: Exception, address: str = "INCREMENTAL_ASSETS_LAKE", rights: str = "list, read, write and delete", otherwise: str = ""
) -> str:
    """The message of an error of delta-rs or obstore in one line, followed by the remedy if one is known, else by ``otherwise``.

    ``address``: where the address of the bucket is set. ``rights``: what the credentials have to be allowed. Errors of object stores have
    several nested lines with terminal colours, carry the store's own answer as XML, and end in the error as obstore's program has it.
    """
    text = re.sub(r"\x1b\[[\d;]*m|↳", "", str(error)) or type(error).__name__
    text = re.sub(r"<\?xml.*?<Code>(.*?)</Code>\s*<Message>(.*?)</Message>.*", r"\1: \2", text, flags=re.DOTALL)
    remedy = next((remedy.format(address=address, rights=rights) for mark, remedy in _REMEDIES.items() if mark in text), otherwise)
    lines = (line.strip() for line in text.partition("\nDebug source:")[0].splitlines())
    return f"{': '.join(filter(None, lines))[:500].rstrip('. ')}. {remedy}".rstrip()
