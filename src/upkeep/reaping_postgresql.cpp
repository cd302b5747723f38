#include "sql/array_text.hpp"
#include "upkeep/reaper_round.hpp"

#include <optional>

namespace rowlock::detail {
namespace {

using sql::value;

/// Scans the table of leases by pages, and changes a batch in one statement.
class postgresql_round final : public reaper_round {
public:
    explicit postgresql_round(const parts& of)
        : reaper_round{of},
          reap_leases_{of.statements("reap_leases")},
          reap_tickets_{of.statements("reap_tickets")},
          delete_leases_{of.statements("delete_leases")},
          delete_ended_sessions_{of.statements("delete_ended_sessions")},
          scan_{scan_by(of.statements("lease_pages"))} {}

private:
    std::int64_t free_leases() override { return change_all(reap_leases_); }
    std::int64_t remove_waiters() override { return run_batches(reap_tickets_); }
    std::int64_t delete_under_floor(std::int64_t retention_us) override {
        return change_all(delete_leases_, retention_us);
    }

    std::int64_t delete_ended(std::span<const session_id> ids) override {
        sql::array_text list;
        for (const auto id : ids) list.add(id);
        return run_with(delete_ended_sessions_, list.close()).affected();
    }

    void read_all(const sql::statement& what, std::span<const value> first,
                  const add_rows& add) override {
        scan_.over_pages([&](const table_scan::pages& in) -> std::optional<table_scan::place> {
            std::vector<value> parameters{first.begin(), first.end()};
            parameters.emplace_back(in.page);
            parameters.emplace_back(in.past);
            add(execute(what, parameters));
            return std::nullopt;
        });
    }

    /// Runs a statement that writes over all pieces of the table of leases. Returns how many rows
    /// it changed.
    template <typename... Values>
    std::int64_t change_all(const sql::statement& what, const Values&... values) {
        std::int64_t total = 0;
        scan_.over_pages([&](const table_scan::pages& in) -> std::optional<table_scan::place> {
            const auto done = run_with(what, options_.batch, values..., in.page, in.row, in.past);
            total += done.integer(0, 0);
            if (done.is_null(0, 1)) return std::nullopt;
            return table_scan::place{done.integer(0, 1), done.integer(0, 2)};
        });
        return total;
    }

    const sql::statement reap_leases_, reap_tickets_, delete_leases_, delete_ended_sessions_;
    const table_scan scan_;
};

}  // namespace

std::unique_ptr<reaper_round> make_postgresql_round(const reaper_round::parts& of) {
    return std::make_unique<postgresql_round>(of);
}

}  // namespace rowlock::detail
