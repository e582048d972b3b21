"""A Slurm of one node on this machine, from Debian's package slurm-wlm: munge, the controller and the node."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.serving import choose_port

_CONF = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SchedulerParameters=sched_interval=1,batch_sched_delay=0,requeue_delay=1
KillWait=1
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory=1000 State=UNKNOWN
PartitionName=cpu Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def can_start() -> bool:
    programs = ("munged", "slurmctld", "slurmd", "sbatch")
    return os.geteuid() == 0 and all(shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") for name in programs)


@contextmanager
def one_node(home: Path) -> Generator[None]:
    """Run a Slurm whose files lie in ``home``; what is started inside finds it by SLURM_CONF."""
    ports: set[int] = set()
    while len(ports) < 2:
        ports.add(choose_port())
    home.chmod(0o755)
    (home / "state").mkdir()
    (home / "spool").mkdir()
    (home / "munge.key").write_bytes(os.urandom(128))
    (home / "munge.key").chmod(0o600)
    host = socket.gethostname().partition(".")[0]
    (home / "slurm.conf").write_text(_CONF.format(host=host, home=home, ports=tuple(ports), cores=os.cpu_count()))
    path, before = f"/usr/sbin:{os.environ['PATH']}", os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(home / "slurm.conf")
    munge = [f"--socket={home}/munge.socket", f"--key-file={home}/munge.key", f"--pid-file={home}/munge.pid"]
    munge += [f"--log-file={home}/munge.log", f"--seed-file={home}/munge.seed", "--force", "--foreground"]
    commands = (["munged", *munge], ["slurmctld", "-D"], ["slurmd", "-D"])
    running = []
    try:
        for command in commands:
            program = shutil.which(command[0], path=path)
            log = (home / f"{command[0]}.out").open("w")
            running.append(subprocess.Popen([program, *command[1:]], stdout=log, stderr=log))
            log.close()
            time.sleep(0.3)
        _wait_for_node()
        yield
    finally:
        for process in reversed(running):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        os.environ.pop("SLURM_CONF")
        if before is not None:
            os.environ["SLURM_CONF"] = before


def _wait_for_node() -> None:
    end = time.monotonic() + 300
    while time.monotonic() < end:
        done = subprocess.run(["sinfo", "--noheader", "--format=%T"], capture_output=True, text=True, check=False)
        if done.stdout.strip() == "idle":
            return
        time.sleep(0.2)
    raise TimeoutError("Slurm's node did not come up")
