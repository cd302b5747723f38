#include "lock/queue/loop_connection.hpp"

#include "sql/pooler.hpp"
#include "sql/server_facts.hpp"

#include <algorithm>

namespace rowlock::detail {

loop_connection::loop_connection(client_context& context, session_registry& sessions,
                                 client_connections& connections)
    : context_{context},
      sessions_{sessions},
      connections_{connections},
      in_cluster_{context.traits().may_be_clustered},
      may_listen_{context.options.wake_ups != wakeup_mode::polling} {}

sql::connection& loop_connection::open(sql::deadline until) {
    if (!db_) {
        db_ = connections_.make(until);
        connected_ = true;
    }
    if (!is_set_up_) {
        set_up(until);
        is_set_up_ = true;
    }
    return *db_;
}

bool loop_connection::is_stale() const {
    return db_ && (!db_->alive() || db_->discarded() || sessions_.leads_elsewhere(*db_));
}

void loop_connection::close() noexcept {
    db_.reset();
    connected_ = is_set_up_ = false;
}

void loop_connection::set_up(sql::deadline until) {
    const auto& traits = context_.traits();
    in_cluster_ =
        traits.may_be_clustered && sql::facts_of(*db_, until).member_of != sql::cluster::none;
    if (!db_->keeps_session_state()) {
        may_listen_ = may_listen_ && !traits.notifies;
        return;
    }
    if (traits.may_be_pooled && may_listen_ && !pooler_known_) {
        // An undeclared pooler: our session state would apply to other clients, and notifications
        // on their connections would be lost to us.
        const auto seen = sql::pooling_of(*db_, context_.source, until);
        if (seen == sql::pooling::transaction) may_listen_ = false;
        pooler_known_ = true;
    }
    if (!traits.may_be_pooled || may_listen_ || !pooler_known_) {
        sql::set_short_lock_timeout(*db_, until);
    }
}

sql::deadline loop_connection::write_deadline() const {
    return sql::row_lock_deadline(*db_, soon(), patience_);
}

void loop_connection::wrote_too_slowly() noexcept {
    patience_ = std::min<nanoseconds>(2 * patience_, context_.options.statement_timeout);
}

}  // namespace rowlock::detail
