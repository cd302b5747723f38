#pragma once

#include "coordination/protocol/semaphore/semaphore_dialects.hpp"

#include <span>

namespace rowlock::protocol {

/// MySQL and SQLite: a read decides, and a short transaction of statements that change one row each
/// finds out what has changed since. Every commit waits for the disk.
class two_step_semaphore_protocol : public common_semaphore_protocol {
public:
    [[nodiscard]] granted_permits grant_next(sql::connection& db, std::string_view name,
                                             sql::deadline until) const override;

protected:
    explicit two_step_semaphore_protocol(const sql::statement_set& statements);

    std::optional<std::int64_t> take(sql::connection& db, const grant_request& request,
                                     sql::deadline until) const override;
    bool give(sql::connection& db, std::string_view name, session_id session, grant_id grant_id,
              sql::deadline until) const override;
    bool shrink_now(sql::connection& db, std::string_view name, session_id session,
                    grant_id grant_id, std::int64_t from, std::int64_t to,
                    sql::deadline until) const override;
    std::int64_t sweep_some(sql::connection& db, std::string_view name,
                            sql::deadline until) const override;
    /// Within a transaction: locks a hold, unless another transaction has it locked.
    virtual bool lock_hold(sql::connection& /*db*/, std::string_view /*name*/,
                           grant_id /*grant_id*/, session_id /*session*/,
                           sql::deadline /*until*/) const {
        return true;
    }

private:
    /// Serves the first waiter; `served` learns of it. Returns false if it cannot be served.
    bool serve_first(sql::connection& db, std::string_view name, std::vector<handed_over>& served,
                     sql::deadline until) const;

    const sql::statement take_, use_, insert_, return_, delete_permit_, shrink_permit_,
        next_waiter_, delete_waiter_, over_;
};

}  // namespace rowlock::protocol
