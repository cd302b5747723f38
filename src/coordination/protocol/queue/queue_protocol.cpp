#include "coordination/protocol/queue/queue_protocol.hpp"

#include "coordination/protocol/queue/queue_dialects.hpp"
#include "coordination/wakeup/mailbox.hpp"

namespace rowlock::strategy {

std::unique_ptr<const queue_protocol> make_queue_protocol(const sql::statement_set& statements,
                                                          const lease_protocol& leases,
                                                          bool by_mail) {
    const queue_parts parts{statements, leases, by_mail};
    switch (statements.speaks()) {
        case sql::dialect::postgresql:
            return make_postgresql_queue(parts);
        case sql::dialect::mysql:
            return make_mysql_queue(parts);
        case sql::dialect::sqlite:
            break;
    }
    return make_sqlite_queue(parts);
}

bool is_near(const wake_address& session) noexcept {
    return wakeup::mail_to{session.number, session.mailbox}.reachable();
}

}  // namespace rowlock::strategy
