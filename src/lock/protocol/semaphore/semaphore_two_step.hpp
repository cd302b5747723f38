#pragma once

#include "lock/protocol/semaphore/semaphore_protocol.hpp"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace rowlock::protocol {

/// MySQL and SQLite: a read decides, and a short transaction of statements that change one row each
/// finds out what has changed since. Every commit waits for the disk.
class two_step_semaphore_protocol : public semaphore_protocol {
public:
    [[nodiscard]] std::vector<bool> release_together(sql::connection& db, std::string_view name,
                                                     session_id session,
                                                     std::span<const own_hold> holds,
                                                     sql::deadline until) const override;
    bool end_upgrade(sql::connection& db, std::string_view name, grant_id upgrade,
                     std::optional<std::int64_t> to, sql::deadline until) const override;

protected:
    explicit two_step_semaphore_protocol(const sql::statement_set& statements);

    std::optional<std::int64_t> take(sql::connection& db, const grant_request& request,
                                     sql::deadline until) const override;
    [[nodiscard]] std::vector<std::int64_t> take_together(sql::connection& db,
                                                          std::span<const grant_request> requests,
                                                          sql::deadline until) const override;
    bool give(sql::connection& db, std::string_view name, session_id session, grant_id grant_id,
              std::int64_t permits, sql::deadline until) const override;
    bool shrink_now(sql::connection& db, std::string_view name, session_id session,
                    grant_id grant_id, const found_hold& read, std::int64_t to,
                    sql::deadline until) const override;
    bool lower_now(sql::connection& db, std::string_view name, session_id session,
                   grant_id grant_id, std::int64_t to, sql::deadline until) const override;
    std::int64_t sweep_some(sql::connection& db, std::string_view name,
                            sql::deadline until) const override;
    /// Within the transaction that has locked a hold, and is about to delete it.
    virtual void note_sweep(sql::connection& /*db*/, std::string_view /*name*/,
                            grant_id /*grant_id*/, session_id /*session*/,
                            sql::deadline /*until*/) const {}

private:
    struct hold_read {
        own_hold hold;
        std::int64_t token;
    };
    [[nodiscard]] std::vector<hold_read> read_several(sql::connection& db, std::string_view name,
                                                      session_id session,
                                                      std::span<const grant_id> grants,
                                                      sql::deadline until) const;
    /// Ends them all. Returns false, and changes nothing, if one of them is over, or has other
    /// permits.
    bool end_holds(sql::connection& db, std::string_view name, session_id session,
                   std::span<const own_hold> holds, sql::deadline until) const;

    const sql::statement take_, find_several_, insert_, return_, delete_permit_, shrink_permit_,
        over_, lock_now_, lock_grant_, insert_lowered_, lower_, lock_upgraded_, end_upgrade_,
        weigh_;
};

}  // namespace rowlock::protocol
