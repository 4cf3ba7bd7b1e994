"""A window without a window: `parent.py CHILD_SCRIPT JOB_SCRIPT_JSON` runs one job and prints the worker's pid."""

import json
import signal
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from core.worker import events
from core.worker.client import WorkerClient
from core.worker.launch import start_worker

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in whatever a shell starts with `&`
    child, script = sys.argv[1], json.loads(sys.argv[2])
    client = WorkerClient(
        lambda message: None, start=partial(start_worker, lambda fd: [sys.executable, child, str(fd)])
    )
    client.submit(events.StartJob(job_id="j", kind="play", payload={"script": script}))
    print(client.worker_pid, flush=True)
    time.sleep(600)
