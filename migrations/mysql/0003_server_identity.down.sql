alter table rowlock_token_floor drop column server_identity;
