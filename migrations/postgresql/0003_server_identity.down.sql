alter table rowlock_token_floor drop column if exists server_identity;
