#include "sql/pooler.hpp"

namespace rowlock::sql {
namespace {

std::int64_t asked_process(connection& db, deadline until) {
    return db.query("select pg_catalog.pg_backend_pid()", until).integer(0, 0);
}

}  // namespace

std::int64_t process_of(connection& db, deadline until) {
    const auto announced = db.announced_process();
    return announced != 0 ? announced : asked_process(db, until);
}

pooling pooling_of(connection& db, const connection_source& source, deadline until) {
    const auto before = asked_process(db, until);
    const auto announced = db.announced_process();
    if (announced == before) return pooling::none_seen;
    // A pooler that rotates through its idle processes.
    if (asked_process(db, until) != before) return pooling::transaction;
    // The other connection's transaction occupies its process. If that was ours between two
    // statements, or ours is another one now, a pooler reassigns processes.
    const auto other = source.connect(until);
    other->query("begin", until);
    const auto theirs = asked_process(*other, until);
    const auto after = asked_process(db, until);
    other->query("rollback", until);
    if (before != after || theirs == after || theirs == before) return pooling::transaction;
    return announced == 0 ? pooling::none_seen : pooling::session;
}

}  // namespace rowlock::sql
