#include "sql/transaction_scope.hpp"
#include "upkeep/reaper_round.hpp"

namespace rowlock::detail {
namespace {

using sql::value;

/// Finds candidates by a plain read, and changes them by primary key with compare-and-set. A DELETE
/// or UPDATE over several tables would lock sessions and stop their heartbeats.
class mysql_round final : public reaper_round {
public:
    explicit mysql_round(const parts& of)
        : reaper_round{of},
          orphans_{of.statements("orphans")},
          clear_sole_{of.statements("clear_sole")},
          dead_tickets_{of.statements("tickets_to_reap")},
          delete_ticket_{of.statements("delete_ticket")},
          deletable_leases_{of.statements("deletable_leases")},
          delete_lease_{of.statements("delete_lease")},
          delete_ended_session_{of.statements("delete_ended_session")} {}

private:
    std::int64_t free_leases() override {
        std::int64_t freed = 0;
        std::string after;
        for (;;) {
            const auto found = run_with(orphans_, after, options_.batch);
            for (std::size_t row = 0; row < found.rows() && !stop_.stop_requested(); ++row) {
                after = found.text(row, 0);
                freed += unless_locked([&] {
                    return run_with(clear_sole_, after, found.integer(row, 1),
                                    found.integer(row, 2))
                        .affected();
                });
            }
            if (is_last(found)) return freed;
        }
    }

    std::int64_t remove_waiters() override {
        std::int64_t removed = 0;
        for (;;) {
            const auto found = run_with(dead_tickets_, options_.batch);
            for (std::size_t row = 0; row < found.rows() && !stop_.stop_requested(); ++row) {
                removed += run_with(delete_ticket_, found.integer(row, 0)).affected();
            }
            if (is_last(found)) return removed;
        }
    }

    std::int64_t delete_under_floor(std::int64_t retention_us) override {
        std::int64_t removed = 0;
        std::string after;
        for (;;) {
            const auto found = run_with(deletable_leases_, after, retention_us, options_.batch);
            if (found.empty()) return removed;
            // One commit a batch; rows in name order, so two reapers cannot wait in a cycle.
            sql::transaction_scope transaction{db_, until()};
            for (std::size_t row = 0; row < found.rows() && !stop_.stop_requested(); ++row) {
                after = found.text(row, 0);
                removed +=
                    run_with(delete_lease_, after, found.integer(row, 1), found.integer(row, 2))
                        .affected();
            }
            transaction.commit(until());
            if (is_last(found)) return removed;
        }
    }

    std::int64_t delete_ended(std::span<const session_id> ids) override {
        return delete_one_by_one(delete_ended_session_, ids);
    }

    void read_all(const sql::statement& what, std::span<const value> first,
                  const add_rows& add) override {
        add(execute(what, first));
    }

    const sql::statement orphans_, clear_sole_, dead_tickets_, delete_ticket_, deletable_leases_,
        delete_lease_, delete_ended_session_;
};

}  // namespace

std::unique_ptr<reaper_round> make_mysql_round(const reaper_round::parts& of) {
    return std::make_unique<mysql_round>(of);
}

}  // namespace rowlock::detail
