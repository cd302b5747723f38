#include "cli/link.hpp"

#include <rowlock/error.hpp>
#include <rowlock/sql/notifications.hpp>

namespace rowlock::cli {

link::link(const database& in, blocked_signals& signals)
    : in_{in},
      signals_{signals},
      protocol_{dialect::statements{in.source.speaks(),
                                    {.schema = in.tables.schema, .prefix = in.tables.prefix}}} {}

void link::listen(sql::connection& db, std::string_view channel, sql::deadline until) {
    sql::notifications* const wake_ups = silent_ ? nullptr : db.notifications();
    if (wake_ups == nullptr) return;
    if (heard_ == channel) {
        static_cast<void>(wake_ups->take());
        return;
    }
    try {
        wake_ups->listen(channel, until);
        heard_ = channel;
    } catch (const error& failure) {
        if (failure.kind() != errc::unsupported) throw;
        silent_ = true;
    }
}

int link::descriptor() const noexcept {
    if (!db_ || heard_.empty()) return -1;
    sql::notifications* const wake_ups = db_->notifications();
    return wake_ups == nullptr ? -1 : wake_ups->descriptor();
}

sql::connection& link::connected(sql::deadline until) {
    if (!db_ || !db_->alive()) {
        heard_.clear();
        db_ = in_.source.connect(until);
        protocol_.set_up(*db_, statement_deadline, until);
        with_tables(in_, [&] { require_current_schema(*db_, in_.tables, until); });
    }
    return *db_;
}

}  // namespace rowlock::cli
