"""Run `longshare` in a fork of the test process: `forked.py SOCKET …`.

To the shell, the script behaves like the command itself.
"""

import os
import signal
import socket
import sys
from pathlib import Path

END = b"\0\0"


def main() -> None:
    """Send the command to the test process, pass signals on, and end as the fork ends."""
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(sys.argv[1])
    environment = b"\0".join(b"=".join(pair) for pair in os.environb.items())
    arguments = b"\0".join(map(os.fsencode, ["longshare", *sys.argv[2:]]))
    request = END.join([os.fsencode(Path.cwd()), environment, arguments])
    socket.send_fds(channel, [len(request).to_bytes(8)], [0, 1, 2])
    channel.sendall(request)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: channel.sendall(bytes([number])))
    code = int.from_bytes(channel.recv(2), signed=True)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
