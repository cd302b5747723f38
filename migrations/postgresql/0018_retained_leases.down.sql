alter table rowlock_lease drop column retained;
