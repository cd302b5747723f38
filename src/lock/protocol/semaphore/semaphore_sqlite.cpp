#include "lock/protocol/semaphore/semaphore_dialects.hpp"
#include "lock/protocol/semaphore/semaphore_two_step.hpp"

namespace rowlock::protocol {
namespace {

/// What a file shows outlives every process that reads it.
class sqlite_semaphore_protocol final : public two_step_semaphore_protocol {
public:
    explicit sqlite_semaphore_protocol(const sql::statement_set& statements)
        : two_step_semaphore_protocol{statements} {}

    std::optional<queue_grant> served(sql::connection& db, std::string_view name,
                                      session_id session, grant_id grant_id,
                                      sql::deadline until) const override {
        const auto found = read(db, name, session, grant_id, until);
        return found ? std::optional{found->granted} : std::nullopt;
    }
};

}  // namespace

std::unique_ptr<const semaphore_protocol> make_sqlite_semaphores(
    const sql::statement_set& statements) {
    return std::make_unique<const sqlite_semaphore_protocol>(statements);
}

}  // namespace rowlock::protocol
