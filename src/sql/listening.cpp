#include "sql/listening.hpp"

#include "sql/pooler.hpp"

namespace rowlock::sql {

notifications* usable_notifications(connection& db, const connection_source& source,
                                    deadline until) {
    auto* const capability = db.notifications();
    if (capability == nullptr || !db.keeps_session_state()) return nullptr;
    if (db.speaks() != dialect::postgresql) return capability;
    return pooling_of(db, source, until) == pooling::transaction ? nullptr : capability;
}

}  // namespace rowlock::sql
