#include "lock/protocol/queue/queue_protocol.hpp"

#include "lock/protocol/queue/queue_dialects.hpp"
#include "lock/wakeup/mailbox.hpp"

namespace rowlock::protocol {

std::unique_ptr<const queue_protocol> make_queue_protocol(const sql::statement_set& statements,
                                                          const lease_protocol& leases,
                                                          bool by_datagram) {
    const queue_parts parts{statements, leases, by_datagram};
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

bool is_near(const wakeup::wake_address& session) noexcept {
    return wakeup::mailbox_sender{session.number, session.mailbox}.reachable();
}

}  // namespace rowlock::protocol
