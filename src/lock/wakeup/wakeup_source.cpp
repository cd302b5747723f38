#include "lock/wakeup/wakeup_source.hpp"

#include "lock/wakeup/mysql_wait_source.hpp"
#include "lock/wakeup/notification_source.hpp"

#include <utility>

namespace rowlock::wakeup {

bool wakeup_source::listen(sql::connection&, const recipient&, session_id, sql::deadline) {
    return false;
}

wakeup_source::kind wakeup_source::wakes(session_id) const noexcept {
    return kind::none;
}

bool wakeup_source::want_commits(bool) {
    return false;
}

std::unique_ptr<wakeup_source> make_database_source(sql::dialect speaks, source_parts with) {
    switch (speaks) {
        case sql::dialect::postgresql:
            return std::make_unique<listen_source>(with.listening);
        case sql::dialect::mysql:
            return std::make_unique<mysql_wait_source>(std::move(with));
        case sql::dialect::sqlite:
            return std::make_unique<file_watch_source>();
    }
    return std::make_unique<wakeup_source>();
}

}  // namespace rowlock::wakeup
