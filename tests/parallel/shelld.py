# SPDX-License-Identifier: Apache-2.0
# A remote shell for tests, as sshd and ssh are: commands run in processes of the server, so that they survive the end of
# the program that asked for them.
#   shelld.py serve SOCKET        shelld.py run SOCKET COMMAND
import os
import signal
import socket
import struct
import sys


def serve(path):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    while True:
        client, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            answer(client)
        client.close()


def answer(client):
    """Runs the command of a client with its files, and sends the exit status."""
    os.setsid()
    text, files, _, _ = socket.recv_fds(client, 65536, 3)
    process = os.fork()
    if process == 0:
        for i, file in enumerate(files):
            os.dup2(file, i)
        os.closerange(3, 100)
        os.execvp("sh", ["sh", "-c", text.decode()])
    for file in files:
        os.close(file)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    try:
        client.send(struct.pack("i", status if status >= 0 else 128 - status))
    except OSError:
        pass
    os._exit(0)


def run(path, command):
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    socket.send_fds(client, [command.encode()], [0, 1, 2])
    status = client.recv(4)
    return struct.unpack("i", status)[0] if len(status) == 4 else 255


if sys.argv[1] == "serve":
    serve(sys.argv[2])
else:
    sys.exit(run(sys.argv[2], sys.argv[3]))
