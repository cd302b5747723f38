#include "lock/wakeup/before_listen.hpp"

#include "sql/listening.hpp"
#include "sql/run_statement.hpp"
#include "sql/statements.hpp"

namespace rowlock::wakeup {

before_listen ask_before_listen(sql::connection& db, const std::optional<server_process>& abandoned,
                                sql::deadline until) {
    static const auto ask = sql::load_statement(db.speaks(), "before_listen");
    const auto row = abandoned ? sql::run(db, ask, until, abandoned->number, abandoned->began)
                               : sql::run(db, ask, until, sql::value{}, sql::value{});
    return {.queue_is_long = row.integer(0, 0) > sql::long_notification_queue,
            .abandoned_runs = row.integer(0, 1) != 0,
            .own = {row.integer(0, 2), row.maybe_integer(0, 3).value_or(0)}};
}

}  // namespace rowlock::wakeup
