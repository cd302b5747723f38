-- Stops the recording. What was recorded stays.
drop trigger if exists rowlock_history_granted;
drop trigger if exists rowlock_history_lease;
drop trigger if exists rowlock_history_deleted;
drop trigger if exists rowlock_history_queued;
drop trigger if exists rowlock_history_left;
drop trigger if exists rowlock_history_opened;
drop trigger if exists rowlock_history_ended;
drop trigger if exists rowlock_history_left_session;
drop trigger if exists rowlock_history_permit_granted;
drop trigger if exists rowlock_history_permit;
drop trigger if exists rowlock_history_permit_ended;
drop trigger if exists rowlock_history_upgrade;
drop trigger if exists rowlock_history_capacity_made;
drop trigger if exists rowlock_history_capacity;
drop trigger if exists rowlock_history_asked;
drop trigger if exists rowlock_history_permit_asked;
