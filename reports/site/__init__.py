"""The pages: what is written (`build.py`), how they look and ask (`assets/`), and what a browser lets them do."""

__all__ = ["POLICY"]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; require-trusted-types-for 'script'; trusted-types metamatrix"
)
"""The content security policy of every page: files of the site, no inline script or style, no text as script."""
