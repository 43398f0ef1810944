"""Where do environments live? A content-addressed store, built by uv, sealed, never changed."""
