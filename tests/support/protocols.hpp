#pragma once

#include "lock/protocol/batch/batch_protocol.hpp"
#include "lock/protocol/lease/lease_protocol.hpp"
#include "lock/protocol/queue/queue_protocol.hpp"
#include "sql/statements.hpp"

#include <memory>

namespace support {

/// The protocols on the tables of one schema and prefix.
class protocols {
public:
    explicit protocols(const rowlock::sql::statement_set& statements)
        : statements_{statements},
          leases_{rowlock::protocol::make_lease_protocol(statements)},
          queue_{rowlock::protocol::make_queue_protocol(statements, *leases_)},
          batches_{rowlock::protocol::make_batch_protocol(statements, *leases_)} {}
    protocols(const protocols&) = delete;
    protocols& operator=(const protocols&) = delete;

    [[nodiscard]] const rowlock::sql::statement_set& statements() const { return statements_; }
    [[nodiscard]] const rowlock::protocol::lease_protocol& leases() const { return *leases_; }
    [[nodiscard]] const rowlock::protocol::queue_protocol& queue() const { return *queue_; }
    [[nodiscard]] const rowlock::protocol::batch_protocol& batches() const { return *batches_; }

private:
    rowlock::sql::statement_set statements_;
    std::unique_ptr<const rowlock::protocol::lease_protocol> leases_;
    std::unique_ptr<const rowlock::protocol::queue_protocol> queue_;
    std::unique_ptr<const rowlock::protocol::batch_protocol> batches_;
};

}  // namespace support
