alter table rowlock_session
    drop column if exists wake_address,
    drop column if exists wake_secret,
    drop column if exists mailbox;
