#include "upkeep/reaper_round.hpp"

namespace rowlock::detail {
namespace {

using sql::value;

/// Scans the table of leases by names, and changes a batch in one statement.
class sqlite_round final : public reaper_round {
public:
    explicit sqlite_round(const parts& of)
        : reaper_round{of},
          reap_leases_{of.statements("reap_leases")},
          reap_tickets_{of.statements("reap_tickets")},
          delete_leases_{of.statements("delete_leases")},
          delete_ended_session_{of.statements("delete_ended_session")},
          scan_{scan_by(of.statements("next_name"))} {}

private:
    std::int64_t free_leases() override { return change_all(reap_leases_); }
    std::int64_t remove_waiters() override { return run_batches(reap_tickets_); }
    std::int64_t delete_under_floor(std::int64_t retention_us) override {
        return change_all(delete_leases_, retention_us);
    }
    std::int64_t delete_ended(std::span<const session_id> ids) override {
        return delete_one_by_one(delete_ended_session_, ids);
    }

    void read_all(const sql::statement& what, std::span<const value> first,
                  const add_rows& add) override {
        scan_.over_names([&](const std::string& after, const value& upto) {
            std::vector<value> parameters{first.begin(), first.end()};
            parameters.emplace_back(after);
            parameters.push_back(upto);
            add(execute(what, parameters));
        });
    }

    /// Runs a statement that writes over all pieces of the table of leases. Returns how many rows
    /// it changed.
    template <typename... Values>
    std::int64_t change_all(const sql::statement& what, const Values&... values) {
        std::int64_t total = 0;
        scan_.over_names([&](const std::string& after, const value& upto) {
            total += run_with(what, values..., after, upto).affected();
        });
        return total;
    }

    const sql::statement reap_leases_, reap_tickets_, delete_leases_, delete_ended_session_;
    const table_scan scan_;
};

}  // namespace

std::unique_ptr<reaper_round> make_sqlite_round(const reaper_round::parts& of) {
    return std::make_unique<sqlite_round>(of);
}

}  // namespace rowlock::detail
