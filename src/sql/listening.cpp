#include "sql/listening.hpp"

#include "sql/database_traits.hpp"
#include "sql/pooler.hpp"

namespace rowlock::sql {

notifications* usable_notifications(connection& db, const connection_source& source,
                                    deadline until) {
    auto* const capability = db.notifications();
    if (capability == nullptr || !db.keeps_session_state()) return nullptr;
    if (!traits_of(db.speaks()).may_be_pooled) return capability;
    return pooling_of(db, source, until) == pooling::transaction ? nullptr : capability;
}

}  // namespace rowlock::sql
