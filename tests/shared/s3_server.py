"""A local S3 server for tests and benchmarks."""

import socket
import subprocess
import time
from pathlib import Path

KEYS = ("timecycle", "timecycle-secret")
# For how long the server may not see a folder that was made beside it. With 0 it would forget folders without end, and
# use a whole core for it.
FOLDER_CACHE_S = 0.01


class S3Server:
    """`rclone serve s3` over a folder; it can be stopped and started again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ACCESS_KEY_ID": KEYS[0],
            "AWS_SECRET_ACCESS_KEY": KEYS[1],
            "AWS_DEFAULT_REGION": "us-east-1",
            # The server does not support the newer checksums.
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
            "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
        }

    def start(self) -> None:
        command = ["rclone", "serve", "s3", "--auth-key", ",".join(KEYS), "--addr", f"127.0.0.1:{self._port}"]
        self._process = subprocess.Popen(
            [*command, "--vfs-cache-mode", "off", "--dir-cache-time", f"{FOLDER_CACHE_S}s", str(self.root)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError("the S3 server did not start")

    def notice(self) -> None:
        """Wait until the server sees what was changed in its folder beside it."""
        time.sleep(2 * FOLDER_CACHE_S)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
