"""A daemon for a test, on ports that the system chooses and on a temporary repo."""

import os
import subprocess
import tempfile


class Daemon:
    """`with Daemon() as daemon:` runs the binary that IPFRS_CLI names; `url` is the address of its HTTP listener.

    `config` is the text of its configuration file, and `repo` the directory of its repo.
    """

    def __init__(self, config=""):
        self.config = config

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory()
        self.repo = os.path.join(self.directory.name, "repo")
        os.mkdir(self.repo)
        with open(os.path.join(self.repo, "config.toml"), "w") as file:
            file.write(self.config)
        settings = {name: value for name, value in os.environ.items() if not name.startswith("IPFRS_")}
        self.process = subprocess.Popen(
            [os.environ["IPFRS_CLI"], "gateway", "start", "--port", "0", "--grpc-port", "0", "--api-port", "0"],
            env={**settings, "IPFRS_PATH": self.repo},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        told = {}
        for line in self.process.stdout:
            name, _, value = line.strip().partition(": ")
            told[name] = value
            if name == "Ready":
                break
        if "Gateway" not in told:
            self.__exit__()
            raise RuntimeError("the gateway did not start")
        self.url = told["Gateway"]
        self.api = told.get("API")
        self.grpc = told.get("gRPC")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()
        self.directory.cleanup()
