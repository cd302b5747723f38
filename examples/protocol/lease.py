#!/usr/bin/env python3
"""Runs a command under a lease in a SQLite file, as docs/protocol.md describes it, beside rowlock's own clients.

    lease.py FILE NAME SECONDS COMMAND [ARGUMENT...]
Waits so many seconds for the lease; then the exit status is 75. It is 70 if the lease was lost, 64 if the name is a
semaphore's, else the command's, which finds the fencing token in LEASE_TOKEN. LEASE_TTL is the session's, in seconds.
"""
import json, math, os, pathlib, re, secrets, sqlite3, subprocess, sys, time

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "protocol"
LOST, A_SEMAPHORE = 70, 64
Stop = type("Stop", (Exception,), {})


def clock():
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # goes on while the machine is suspended


class Client:
    def __init__(self, file, ttl):
        self.ttl, self.margin, self.revision, self.asked_until, self.sections = ttl, ttl / 6, 0, math.inf, {}
        for path in ("sqlite.sql", "common.sql"):
            parts = re.split(r"^-- (?:statement|fragment) (\S+)$", (FOLDER / path).read_text(), flags=re.M)
            for name, text in zip(parts[1::2], parts[2::2]):
                self.sections.setdefault(name, re.sub(r"^--.*$", "", text, flags=re.M).strip())
        self.db = sqlite3.connect(pathlib.Path(file).absolute().as_uri() + "?mode=rw", uri=True, isolation_level=None,
                                  timeout=ttl / 6)
        self.db.execute("pragma synchronous = full")
        known = json.loads((FOLDER / "vectors.json").read_text())["migrations"]["sqlite"]
        found = self.ask("migrations").fetchall()
        if ([row[0] for row in found] != list(range(1, len(found) + 1))
                or [row[1] for row in found[:len(known)]] != known
                or any((oldest or version) > len(known) for version, _, oldest in found[len(known):])):
            raise SystemExit("the tables are not those of this protocol: see `rowlock migrate --status`")
        self.session = secrets.randbelow(2**62) + 1
        sent = clock()
        if self.change("open_session", self.session, f"random:{self.session}", os.uname().nodename, os.getpid(),
                       "lease.py", round(ttl * 1e6), 0, "", None, "") != 1:
            raise SystemExit("the row of the token floor is missing")
        self.beaten, self.trusted_until = sent, sent + ttl - self.margin

    def ask(self, name, *values):
        text = self.sections[name]
        while found := re.search(r"\{(\w+)\}", text):
            text = text.replace(found[0], self.sections[found[1]])
        return self.db.execute(re.sub(r"\$(\d+)", r"?\1", text), values)

    def change(self, name, *values):
        try:
            return self.ask(name, *values).rowcount
        except sqlite3.IntegrityError:  # another client was faster
            return 0

    def acquire(self, name, grant):
        while True:
            token, _, present, seen, free, waited, holder, expired, _, parts = \
                self.ask("probe", name, self.session).fetchone()
            if parts == 2:
                raise Stop(A_SEMAPHORE)
            if expired:
                self.change("end_expired_session", holder)
            elif not free or waited:
                return None  # busy
            elif self.change(*(("take", name, self.session, grant, None, None, None, seen, token) if present else
                               ("insert_lease", name, self.session, grant, None, None, None, token))) == 1:
                return token

    def poll(self, name, grant):
        lives, ticket, _, _, holder, expired, *_, parts = self.ask("entry", name, self.session, grant).fetchone()
        if not lives or ticket is None and self.change("confirm_grant", name, self.session, grant) != 1:
            raise Stop(LOST)
        if ticket is None:
            return self.ask("find_grant", name, self.session, grant).fetchone()[0]
        if parts == 2:
            raise Stop(A_SEMAPHORE)  # the session ends, and its entry with it
        if expired:
            self.change("end_expired_session", holder)
        self.serve_next(name)

    def serve_next(self, name):
        while True:
            token, present, seen, free, _, _, ticket, *waiter, members, _, _, _, weight = \
                self.ask("next_waiter", name).fetchone()
            if not free or ticket is None or members > 1 or weight is not None:
                return  # a request for several, or for a part: its client takes it
            if not present:
                self.change("restore_lease", name)
                continue
            self.db.execute("begin immediate")
            both = (self.change("take", name, *waiter, seen, token) == 1
                    and self.change("delete_ticket", ticket, name) == 1)
            self.db.execute("commit" if both else "rollback")

    def keep(self, grant):
        """To be called often. Raises Stop once the lease may not be believed; returns whether another asks for it."""
        if (sent := clock()) >= min(self.trusted_until, self.asked_until):
            raise Stop(LOST)
        if sent - self.beaten < self.ttl / 3:
            return False
        self.beaten = sent
        try:
            if self.change("heartbeat", self.session, self.revision) == 1:
                if clock() < self.trusted_until:  # else the window stays closed
                    self.trusted_until = sent + self.ttl - self.margin
                return False
            lives, revision = self.ask("session_state", self.session).fetchone() or (0, 0)
            ours = {lease[1]: lease[3] for lease in self.ask("session_leases", self.session)}
        except sqlite3.OperationalError:
            return False  # busy: again, while the window is open
        if not lives or grant is not None and grant not in ours:
            raise Stop(LOST)
        if (left := ours.get(grant)) is not None:
            self.asked_until = sent + left / 1e6 - self.margin - 0.001
        self.revision, self.beaten = revision, 0  # beats again with it
        return left is not None


def run(client, name, wait, command):
    grant, give_up = secrets.randbelow(2**62) + 1, clock() + wait
    if (token := client.acquire(name, grant)) is None and wait > 0:
        client.change("enqueue", name, client.session, grant, None, None, None, int(min(wait, 1e9) * 1e6))
        while (token := client.poll(name, grant)) is None and clock() < give_up:
            client.keep(None)
            time.sleep(0.05)
    if token is None:
        return 75  # a waiter's entry dies with the session
    client.keep(grant)
    child = subprocess.Popen(command, env={**os.environ, "LEASE_TOKEN": str(token)})
    try:
        while child.poll() is None:
            if client.keep(grant):
                child.terminate()  # and is killed when its time is over
            time.sleep(0.02)
    except Stop:
        child.kill(), child.wait()
        raise
    return child.returncode if client.change("release", name, client.session, grant) == 1 else LOST


if len(sys.argv) < 5:
    raise SystemExit(__doc__)
file, lock, seconds, *command_line = sys.argv[1:]
if not 1 <= len(os.fsencode(lock)) <= 255 or re.search("[\0-\x1f\x7f-\x9f\ud800-\udfff\U0010ffff]", lock):
    raise SystemExit("a name is 1 to 255 bytes of UTF-8 without control characters")
try:
    locks = Client(file, float(os.environ.get("LEASE_TTL", 30)))
    try:
        status = run(locks, lock, float(seconds), command_line)
    except Stop as why:  # no command runs any more, so the session may end
        status = why.args[0]
    locks.change("end_session", locks.session)
    locks.serve_next(lock)
except sqlite3.Error as failure:
    raise SystemExit(f"{file}: {failure}")
sys.exit(status if status >= 0 else 128 - status)
