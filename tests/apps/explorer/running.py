"""A real `flowbias explore` in a process of its own."""

import http.client
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3] / "src"


class Running:
    """A started server: its process, its port, and what it has said so far."""

    def __init__(self, process):
        self.process = process
        self.said = []
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)/", "".join(self.said))):
            line = process.stderr.readline()
            assert line, f"the server ended: {self.said}"
            self.said.append(line)
        self.port = int(found.group(1))
        self.address = found.group()

    def get(self, path="/", method="GET", **headers):
        """Status, headers and body of one request, its path sent as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest(method, path, skip_host=True)
        sent = {"Host": f"127.0.0.1:{self.port}"} | headers
        for name, value in sent.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, answer.headers, body

    def stop(self, how=signal.SIGINT):
        """Ctrl-C, or another signal; the exit code and what was said until then."""
        self.process.send_signal(how)
        _, rest = self.process.communicate(timeout=60)
        return self.process.returncode, "".join(self.said) + rest


@contextmanager
def running(*options, port=0, before=()):
    """Folders `before` ours are searched first for what is imported."""
    command = [sys.executable, "-m", "flowbias", "explore", "--no-browser", "--port", str(port)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (*before, SOURCE)))}
    process = subprocess.Popen(
        [*command, *options], stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield Running(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stderr.close()
