-- PostgreSQL alone: its checks cost each statement more than the row that it writes. Nothing changes here.
-- oldest library: 16
update rowlock_token_floor set floor = floor;
