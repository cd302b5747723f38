-- As on the other databases; a file is not promoted, and this stays empty.
alter table rowlock_token_floor add column server_identity text not null default '';
