alter table rowlock_lease add check (token >= 0);
alter table rowlock_session add check (id > 0), add check (ttl_us > 0);
alter table rowlock_semaphore add check (capacity >= 0), add check (kind in (0, 1)),
    add check (kind = 0 or capacity = 1999999999);
alter table rowlock_permit add check (permits > 0);
alter table rowlock_permit_waiter add check (permits > 0);
