#pragma once

/// Everything except drivers.
#include <rowlock/advisory_lock.hpp>
#include <rowlock/client.hpp>
#include <rowlock/error.hpp>
#include <rowlock/events.hpp>
#include <rowlock/fenced_table.hpp>
#include <rowlock/fencing_token.hpp>
#include <rowlock/history.hpp>
#include <rowlock/ids.hpp>
#include <rowlock/lease.hpp>
#include <rowlock/lock_name.hpp>
#include <rowlock/migrations.hpp>
#include <rowlock/mutex.hpp>
#include <rowlock/optimistic.hpp>
#include <rowlock/options.hpp>
#include <rowlock/reaper.hpp>
#include <rowlock/retry.hpp>
#include <rowlock/row_lock.hpp>
#include <rowlock/row_session.hpp>
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>
#include <rowlock/stats.hpp>
#include <rowlock/table_row.hpp>
#include <rowlock/timeout.hpp>
#include <rowlock/transaction.hpp>
#include <rowlock/version.hpp>
