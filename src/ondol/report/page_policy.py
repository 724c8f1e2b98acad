"""What a page of ours allows itself: exactly its own style and its own script, by their hashes, and nothing else."""

import base64
import hashlib


def policy(style: str, script: str = "") -> str:
    """For the `Content-Security-Policy` of a page that holds both."""
    parts = ["default-src 'none'", f"script-src {_hash(script)}" if script else "", f"style-src {_hash(style)}"]
    return "; ".join([part for part in parts if part] + ["base-uri 'none'", "form-action 'none'"])


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
