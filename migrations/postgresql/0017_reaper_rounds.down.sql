alter table rowlock_token_floor drop column reaped_at;
