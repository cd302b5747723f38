update rowlock_token_floor set floor = floor;
