-- How a session is told that its rows were changed, and the revision that it has since. Read after the commit:
-- a hint, which only moves the session's next heartbeat forward. No row: the session is gone.
-- $1 session
-- wake-up address, secret, mailbox, revision
select wake_address, wake_secret, mailbox, revision from rowlock_session where id = $1
