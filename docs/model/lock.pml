/* The lock of a name: its row (rowlock_lock) with a sole holder inline, its counted holds (rowlock_hold), its queue
 * (rowlock_ticket) and its clients' sessions, as PostgreSQL's statements and the threads of a client do it. README.md says
 * how to read it, what is left out, and what each run showed.
 *
 * A statement at READ COMMITTED is
 *   1. a snapshot: what it reads, into variables of its process (read_rows);
 *   2. for a statement that ends a hold, or its upgrade: it waits for the hold's lock, and re-reads that hold;
 *   3. it waits for the row's lock, re-reads that row and nothing else, and commits.
 * The lock of the row and the commit are one step: what is between them no other statement can tell from before, except
 * in a request for several names, which takes its locks one by one.
 *
 * Weights: shared 1, upgradeable 4; room 7. In a queue a sole entry weighs SOLE, more than there is room.
 *
 * Clients, all with -D: C1 … C4 are SOLE, SHARED, UPGRADES (upgradeable, then exclusive by an upgrade) or, with SEVERAL,
 * BOTH (a request for two names). Sizes: ROUNDS (locks each takes), LAPSES (sessions that expire while their
 * client lives), DEATHS (clients that are killed), CANCELS (waiters that give up), BEATS (heartbeats).
 * Ways: LOWERS (a sole hold may become shared), DOWNGRADES (an upgraded one upgradeable again), AGAIN (and once more
 * upgraded), SHRINKS (and then shared), RISES (and then upgradeable, by way of an upgrade).
 * Initial states. HELD: client 1 has the lock, the others enqueue at once; QUEUED, too: the upgrade of 1 is in the queue, and
 * 2 serves that, which has released its hold (RETURNS: and asks again). CHAIN: three clients amid hand-overs that need
 * not wait for the disk; BEFORE: the entry of 2 is before that of 1, to which the token is promised; SOON: the crash comes first;
 * LEFT: 3 was killed, and its session has expired.
 * Parts: REPLIES (of releases are lost), LATE (so many statements run on after their reply was lost), CRASH (the
 * server loses what was not flushed), REAPER, FENCE, RETAKE, PROMISE, WATERMARK, FAIR (nobody is overtaken),
 * FORCE, REQUEST (an operator ends, or asks for, what client VICTIM has), SEMAPHORE (the name becomes a semaphore's),
 * BATCH (sole takes as acquire_all sends them for names that are free).
 * Faults of the protocol, each known to be wrong: WRONG_…; README.md lists them. */

#define SOLE 9
#define SHARED 1
#define UPGRADES 4
#define ROOM 7      /* belief in a sole hold weighs as much */

#ifndef C1
#define C1 SOLE
#endif
#ifndef C2
#define C2 SOLE
#endif
#ifdef C4
#define CLIENTS 4
#define WANT(s) ((s) == 1 -> C1 : ((s) == 2 -> C2 : ((s) == 3 -> C3 : C4)))
#elif defined(C3)
#define CLIENTS 3
#define WANT(s) ((s) == 1 -> C1 : ((s) == 2 -> C2 : C3))
#else
#define CLIENTS 2
#define WANT(s) ((s) == 1 -> C1 : C2)
#endif
/* Clients may ask for BOTH names: for A1 of the first and B1 of the second, A2 and B2, A3 and B3. */
#define BOTH 0
#ifdef SEVERAL
#ifndef A1
#define A1 0
#define B1 0
#endif
#ifndef A3
#define A3 0
#define B3 0
#endif
#define OF(c, x1, x2, x3) ((c) == 1 -> x1 : ((c) == 2 -> x2 : x3))
#define WEIGHT(l, c) (WANT(c) != BOTH -> WANT(c) : ((l) == 0 -> OF(c, A1, A2, A3) : OF(c, B1, B2, B3)))
#define MEMBERS(c) (WANT(c) == BOTH)
#else
#define WEIGHT(l, c) WANT(c)
#define MEMBERS(c) false
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef LAPSES
#define LAPSES 0
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef CANCELS
#define CANCELS 0
#endif
#ifndef BEATS
#define BEATS 0
#endif

#ifdef MIX      /* C1=MIXED: first shared, then sole */
byte wants = SHARED;
#define MIXED (wants)
#endif

/* --- the tables --------------------------------------------------------------------------------- */

/* A client has at most one hold and one entry of a name. In a session, a ticket and a grant id 0 means NULL. */
#ifdef SEVERAL
#define NAMES 2
#define AT(l, c) ((l) * (CLIENTS + 1) + (c))
#define CELLS (2 * CLIENTS + 2)
#else
#define NAMES 1
#define AT(l, c) (c)
#define CELLS (CLIENTS + 1)
#endif

/* rowlock_lock */
bit present[NAMES];     /* the row exists */
byte token[NAMES];
byte sole[NAMES];       /* session of the sole holder, numbered as its client */
byte grant[NAMES];      /* its grant id: 8 times the client's number + the number of the attempt. Without a sole holder: */
                        /* that of an upgrade, whose hold is the only one */
byte used[NAMES];
byte promised[NAMES];   /* successor: the grant id for which the next token is reserved */
byte served[NAMES];     /* the watermark: queues are read from here on */
bit row_deadline[NAMES], row_over[NAMES];   /* the sole holder's own deadline: set, passed */
byte made[NAMES];       /* which row of this name it is: a statement finds no row that is younger than its snapshot */

#ifdef SEMAPHORE
bit semaphore;          /* capacity: the name is a semaphore's */
#define IS_SEMAPHORE semaphore
#else
#define IS_SEMAPHORE 0
#endif

/* rowlock_hold */
byte hold[CELLS];       /* weight; 0: there is none */
byte hgrant[CELLS];
byte htoken[CELLS];
bit deadline[CELLS], over[CELLS];           /* set, passed */
#ifdef CRASH    /* and one that a crash has brought about: its entry was done with, came back, and was served */
byte more[CELLS];
#define MORE(l, c) more[AT(l, c)]
#else
#define MORE(l, c) 0
#endif

/* rowlock_ticket */
byte ticket[CELLS];     /* 1: an upgrade's, before all others */
byte place[CELLS];      /* its grant id */
byte base[CELLS];       /* of an upgrade: the grant id of its hold */
byte next_ticket = 2;
#define UP(l, c) (base[AT(l, c)] != 0)

/* rowlock_token_floor */
byte floor, settled;

/* rowlock_session: one for each client */
bit there[CLIENTS + 1];
bit ended[CLIENTS + 1];
#define FAR 2   /* expires_at: the client's trust window is open until this is NEAR */
#define NEAR 1
#define PAST 0
byte expires[CLIENTS + 1];

#define LIVE(c) (there[c] && !ended[c] && expires[c] != PAST)
#ifdef WRONG_CLOCK  /* what an expired session has is taken without ending the session first */
#define DEAD(c) (!there[c] || ended[c] || expires[c] == PAST)
#else
#define DEAD(c) (!there[c] || ended[c])
#endif
#define MINE(l, c, g) (present[l] && sole[l] == (c) && grant[l] == (g))
#define HOLDS(l, c, g) (hold[AT(l, c)] != 0 && hgrant[AT(l, c)] == (g))
#define SOLE_DEAD(l) (sole[l] != 0 && (DEAD(sole[l]) || row_over[l]))
/* The row names an upgrade, or this one. */
#define IS_UPGRADED(l) (present[l] && sole[l] == 0 && grant[l] != 0)
#define UPGRADE(l, g) (IS_UPGRADED(l) && grant[l] == (g))
#ifdef WRONG_UPGRADE_ROOM   /* there is room beside an upgraded hold */
#define HAS_ROOM(l, w) (used[l] + (w) <= ROOM)
#else
#define HAS_ROOM(l, w) (!IS_UPGRADED(l) && used[l] + (w) <= ROOM)
#endif
#define FREE(l) (!present[l] || ((sole[l] == 0 || SOLE_DEAD(l)) && used[l] == 0 && !IS_SEMAPHORE))
#define HOLD_DEAD(l, c) (hold[AT(l, c)] + MORE(l, c) != 0 && (DEAD(c) || over[AT(l, c)]))
/* An entry that can be served; an upgrade's needs its hold. */
#define STANDING(l, c) (ticket[AT(l, c)] != 0 && LIVE(c) && (!UP(l, c) || (HOLDS(l, c, base[AT(l, c)]) && !over[AT(l, c)])))

/* --- locks, notifications, the disk ------------------------------------------------------------- */

bit row_fenced[NAMES];      /* a transaction of the sole holder's caller */
bit row_locked[NAMES];      /* by a request for several names */
bit hold_locked[CELLS];     /* it is being ended, or asked for */
byte hold_shared[CELLS];    /* by fences */
bit beating[CLIENTS + 1];   /* a heartbeat has locked the session's row */

byte notified[CLIENTS + 1]; /* of a grant: its id and token */
byte notified_token[CLIENTS + 1];
bit called[CLIENTS + 1];    /* with the token 0: a request for several names is first in a queue, and fits */

byte epoch;                 /* crashes so far: a statement sent before the last one is lost */

#ifdef CRASH
bit d_present, d_deadline[CELLS], d_over[CELLS], d_row_deadline, d_row_over;
byte d_token, d_sole, d_grant, d_used, d_promised, d_served, d_floor, d_settled;
byte d_more[CELLS], d_hold[CELLS], d_hgrant[CELLS], d_htoken[CELLS], d_ticket[CELLS], d_place[CELLS], d_base[CELLS];
bit d_there[CLIENTS + 1], d_ended[CLIENTS + 1];
byte d_i;
/* A commit that waits for the disk; it makes all earlier commits durable, too. */
#define FLUSH                                                                                       \
    d_present = present[0]; d_token = token[0]; d_sole = sole[0]; d_grant = grant[0]; d_used = used[0]; \
    d_promised = promised[0]; d_served = served[0]; d_floor = floor; d_settled = settled;           \
    d_row_deadline = row_deadline[0]; d_row_over = row_over[0]; d_i = 1;                            \
    do                                                                                              \
    :: d_i <= CLIENTS -> d_there[d_i] = there[d_i]; d_ended[d_i] = ended[d_i];                      \
                         d_hold[d_i] = hold[d_i]; d_hgrant[d_i] = hgrant[d_i]; d_htoken[d_i] = htoken[d_i]; \
                         d_more[d_i] = more[d_i];                                                   \
                         d_deadline[d_i] = deadline[d_i]; d_over[d_i] = over[d_i];                  \
                         d_ticket[d_i] = ticket[d_i]; d_place[d_i] = place[d_i]; d_base[d_i] = base[d_i]; d_i++ \
    :: else -> break                                                                                \
    od; d_i = 0
#define INTACT (e == epoch)     /* the server has not crashed since the statement was sent */
#define EPOCH epoch
#else
#define FLUSH skip
#define INTACT true
#define EPOCH 0
#endif
#ifdef WRONG_8  /* sole grants, too, are committed asynchronously */
#define FLUSH_GRANT skip
#else
#define FLUSH_GRANT FLUSH
#endif
#ifdef WRONG_UNFLUSHED  /* a counted grant is believed before it is on disk */
#define FLUSH_READ skip
#else
#define FLUSH_READ FLUSH
#endif
#ifdef WRONG_ASYNC  /* a change of what is held is committed asynchronously */
#define FLUSH_CHANGE skip
#else
#define FLUSH_CHANGE FLUSH
#endif

/* --- the clients -------------------------------------------------------------------------------- */

bit dead[CLIENTS + 1];      /* killed */
bit trust[CLIENTS + 1];     /* the trust window is open; once closed it stays closed */
byte knows[CLIENTS + 1];    /* the grant id that it has requested and not yet released */
byte knows_up[CLIENTS + 1]; /* and that of its upgrade */
bit due[CELLS];             /* its waiter loop must check the queue */
bit at_work[CELLS];         /* and is doing so */
bit waiting[CLIENTS + 1];   /* queued, and neither notified nor lost */
bit running[CLIENTS + 1];   /* a statement that may make a row is in flight, */
bit older[CLIENTS + 1];     /* and was sent before the floor was raised */
bit taken_away[CLIENTS + 1];/* its client knows that an operator has ended its grant, or asked for it */

byte lapses = LAPSES, deaths = DEATHS, cancels = CANCELS, beats = BEATS;
#ifdef LATE
byte replies_lost = LATE;
#endif

/* --- what must hold ----------------------------------------------------------------------------- */

byte mode[CELLS];           /* what a client believes that it holds: 0, SHARED, UPGRADES, ROOM */
byte fmode[CELLS];          /* and of its caller's open transaction that is fenced */
bit overlap;                /* exclusion */
byte written, read_at;      /* fenced writes: a sole holder's token is above that of every write before it, and */
                            /* a counted holder's above that of every sole holder's */
bit stale_write;
byte top[NAMES], top_grant[NAMES];  /* each grant's token is above all that a client was told. A grant that a crash has */
bit token_fell;             /* undone may be made again, with the same id and the same token. */
bit robbed[CLIENTS + 1];    /* a dead session stays dead: a session that was taken from as from a dead one */
bit revived;                /* is never alive again */
bit miscounted;             /* in every committed state `used` is the sum of the holds, none beside a sole holder; and an */
                            /* upgrade is that of the only hold */
bit mixed;                  /* SEMAPHORE: nobody holds a semaphore's name as a mutex */
bit part;                   /* SEVERAL: all or none */
bit overtaken;              /* FAIR: nobody who asked after a live waiter's entry was there comes before it */
/* No lost wake-up: no end state in which a waiter is queued. The wait in the queue is no end label,
 * and no process loops forever: every process that can take a step takes it. */

hidden byte x_i, x_sum;
inline check_overlap(x_l) {
    x_i = 1; x_sum = 0;
    do
    :: x_i <= CLIENTS ->
        x_sum = x_sum + (mode[AT(x_l, x_i)] > fmode[AT(x_l, x_i)] -> mode[AT(x_l, x_i)] : fmode[AT(x_l, x_i)]);
        x_i++
    :: else -> break
    od;
    overlap = x_sum > ROOM;
    assert(!overlap)
}

inline check_sum(x_l) {
    x_i = 1; x_sum = 0;
    do
    :: x_i <= CLIENTS -> x_sum = x_sum + hold[AT(x_l, x_i)] + MORE(x_l, x_i); x_i++
    :: else -> break
    od;
    miscounted = used[x_l] != x_sum || (sole[x_l] != 0 && (used[x_l] != 0 || grant[x_l] == 0));
#ifndef NOT_OF_UPGRADES
    miscounted = miscounted || (IS_UPGRADED(x_l) && (used[x_l] == 0 || hold[AT(x_l, grant[x_l] / 8)] != used[x_l]));
#endif
    assert(!miscounted);
    mixed = IS_SEMAPHORE && (sole[x_l] != 0 || used[x_l] != 0);
    assert(!mixed)
}

inline believe(x_l, who, what) {
    d_step {
        mode[AT(x_l, who)] = what;
        check_overlap(x_l)
    }
}

/* A new token, and whether a client was told it. */
inline check_token(x_l, to_g, to_t) {
    token_fell = !((to_t) > top[x_l] || ((to_t) == top[x_l] && (to_g) == top_grant[x_l]));
    assert(!token_fell)
}
inline told(x_l, to_g, to_t) {
    top_grant[x_l] = ((to_t) >= top[x_l] -> (to_g) : top_grant[x_l]);
    top[x_l] = ((to_t) > top[x_l] -> (to_t) : top[x_l])
}

/* --- pieces of statements ----------------------------------------------------------------------- */

#ifdef WRONG_STALE
#define ALSO ; byte stale
#else
#define ALSO
#endif
/* Variables of a process that sends statements. seen[i] is the ticket of a waiter i that can be served. */
#define STATEMENT                                                                                   \
    byte e, s_token, s_sole, s_floor, s_heir, s_row, pick, i, new, todo, whose, s_from, lacks;      \
    bit s_free, s_dead, s_there, s_mine, s_waited, broken, ok;                                      \
    byte seen[CLIENTS + 1] ALSO

/* A queue that only a sole grant reads begins after the watermark, and has no upgrades. */
#ifdef WATERMARK
#define FROM(l) (served[l] > 1 -> served[l] : 1)
#else
#define FROM(l) 1
#endif

/* The snapshot. */
inline read_rows(x_l) {
    e = EPOCH;
    s_there = present[x_l]; s_free = FREE(x_l); s_dead = SOLE_DEAD(x_l); s_sole = sole[x_l]; s_token = token[x_l];
    s_floor = floor; s_row = made[x_l]; s_heir = 0; s_waited = 0; s_from = FROM(x_l);
    i = 1;
    do
    :: i <= CLIENTS ->
        seen[i] = (STANDING(x_l, i) -> ticket[AT(x_l, i)] : 0);
        s_waited = s_waited || seen[i] != 0;
        s_heir = ((promised[x_l] != 0 && seen[i] != 0 && place[AT(x_l, i)] == promised[x_l]) -> i : s_heir);
        i++
    :: else -> break
    od;
    i = 0
}

/* A statement has ended: its reply has arrived or will not come. */
inline forget_rows() {
    broken = !INTACT;
    s_there = 0; s_free = 0; s_dead = 0; s_sole = 0; s_mine = 0; s_token = 0; s_floor = 0; s_row = 0; s_heir = 0;
    s_waited = 0; pick = 0; new = 0; e = 0; whose = 0; s_from = 0; lacks = 0;
    i = 1;
    do
    :: i <= CLIENTS -> seen[i] = 0; i++
    :: else -> break
    od;
    i = 0
}

#define LOCKABLE(l) ((!row_fenced[l] && !row_locked[l]) || !INTACT)
#define SAME_ROW(l) (present[l] && s_there && made[l] == s_row)

/* The first entry of the snapshot that still exists. */
#ifdef WRONG_3B  /* the delete does not check that the ticket still exists */
#define STANDS(l, c) (seen[c] != 0 && expires[c] != PAST)
#else
#define STANDS(l, c) (seen[c] != 0 && ticket[AT(l, c)] == seen[c] && expires[c] != PAST)
#endif
inline first_entry(x_l, from) {
    pick = 0;
    i = 1;
    do
    :: i <= CLIENTS ->
        pick = ((STANDS(x_l, i) && seen[i] > (from) && (s_heir == 0 || s_heir == i) &&
                 (pick == 0 || seen[i] < seen[pick])) -> i : pick);
        i++
    :: else -> break
    od;
    i = 0
}
/* What a sole hold is lowered to keeps the deadline that an operator has set. */
#ifdef WRONG_DEADLINE
#define CARRIED(d) 0
#else
#define CARRIED(d) d
#endif

/* What a grant with the id g skips: a token that is reserved for another. */
#define LEFT_OUT(l, g) ((promised[l] != 0 && promised[l] != (g)) -> 1 : 0)
#ifdef WRONG_SKIP   /* a counted grant does not */
#define LEFT_OUT_COUNTED(l) 0
#else
#define LEFT_OUT_COUNTED(l) LEFT_OUT(l, 0)
#endif
#ifdef WRONG_STAYS  /* nor does it clear the promise */
#define CLEAR_PROMISE(l) skip
#else
#define CLEAR_PROMISE(l) promised[l] = 0
#endif
/* A grant moves it to its ticket, unless it was set back since the snapshot. */
#ifdef WRONG_REWIND
#define WATER(l, t) t
#elif defined(WATERMARK)
#define WATER(l, t) (FROM(l) < s_from -> served[l] : (t))
#else
#define WATER(l, t) 0
#endif
#define ABOVE(a, b) (((a) > (b)) -> (a) : (b))

/* The row becomes a sole grant to a session, with a new token. The caller commits it. */
inline write_sole(x_l, to_s, to_g, to_t, from_s) {
    robbed[sole[x_l]] = robbed[sole[x_l]] || (sole[x_l] != 0 && sole[x_l] != (from_s) && !row_over[x_l] &&
                                              there[sole[x_l]] && !ended[sole[x_l]]);
    check_token(x_l, to_g, to_t);
    told(x_l, to_g, to_t);
    present[x_l] = 1; token[x_l] = to_t; sole[x_l] = to_s; grant[x_l] = to_g;
    notified[to_s] = to_g; notified_token[to_s] = to_t
}

inline write_hold(x_l, to_s, to_g, to_t, weight) {
#if !defined(WRONG_R4_TAKE) && !defined(WRONG_R4_LOWER)
    check_token(x_l, to_g, to_t);
#endif
#ifdef CRASH
    more[AT(x_l, to_s)] = more[AT(x_l, to_s)] + hold[AT(x_l, to_s)];
#endif
    hold[AT(x_l, to_s)] = weight; hgrant[AT(x_l, to_s)] = to_g; htoken[AT(x_l, to_s)] = to_t;
    deadline[AT(x_l, to_s)] = 0; over[AT(x_l, to_s)] = 0;
    token[x_l] = to_t; used[x_l] = used[x_l] + weight
}

/* The row names an upgrade. */
inline write_upgrade(x_l, to_g, to_t) {
    check_token(x_l, to_g, to_t);
    grant[x_l] = to_g; token[x_l] = to_t; promised[x_l] = 0;
    check_sum(x_l)
}

/* A hold has been ended, and with it its upgrade. */
#ifdef WRONG_UPGRADE_STAYS  /* without it */
#define LESS(l, w) used[l] = used[l] - (w)
#else
#define LESS(l, w) used[l] = used[l] - (w); grant[l] = 0
#endif
/* The row has no sole holder any more. */
#define FREED(l) sole[l] = 0; grant[l] = 0; row_deadline[l] = 0; row_over[l] = 0
#define NO_HOLD(l, c) hold[AT(l, c)] = 0; hgrant[AT(l, c)] = 0; htoken[AT(l, c)] = 0; deadline[AT(l, c)] = 0; over[AT(l, c)] = 0
#define NO_ENTRY(l, c) ticket[AT(l, c)] = 0; place[AT(l, c)] = 0; base[AT(l, c)] = 0

/* Commits a sole grant to `pick`, and deletes its entry. */
inline give_to_pick(x_l, giver) {
    new = ABOVE(token[x_l], s_floor) + 1 + LEFT_OUT(x_l, place[AT(x_l, pick)]);
    i = place[AT(x_l, pick)];
#ifdef WRONG_3B
    i = (i == 0 -> 8 * pick : i);   /* cancelled: an id that no client knows any more */
#endif
    write_sole(x_l, pick, i, new, giver);
    i = 0; new = 0;
    served[x_l] = WATER(x_l, seen[pick]);
    row_deadline[x_l] = 0; row_over[x_l] = 0;
    promised[x_l] = 0; NO_ENTRY(x_l, pick);
    check_sum(x_l);
    FLUSH_GRANT
}

/* --- serving the queue -------------------------------------------------------------------------- */

/* What a sweep takes: holds of the dead. What another transaction has locked is left. */
#ifdef WRONG_SWEEP      /* a fence does not keep the hold */
#define UNLOCKED(l, c) (!hold_locked[AT(l, c)])
#else
#define UNLOCKED(l, c) (!hold_locked[AT(l, c)] && hold_shared[AT(l, c)] == 0)
#endif
#define SWEEPABLE(l, c) (HOLD_DEAD(l, c) && UNLOCKED(l, c))
#define TO_CLEAR(l) (s_dead && WEIGHT(l, pick) != SOLE)

#define NOTHING 0
#define LOOK 1          /* look at the row and its queue, */
#define GRANT_SOLE 2    /* grant_next: a free row to the first, which is sole, */
#define GRANT_COUNTED 3 /* grant_counted: the longest prefix that fits, or an upgrade, */
#define CLEAR 4         /* clear_sole, */
#define SWEEP 5

/* The look was old, and another kind is first. */
#ifdef WRONG_CHOICE     /* then nothing is done */
#define OTHER(next) NOTHING
#else
#define OTHER(next) next
#endif
/* names_with_waiters: what comes first, and which statement is for it. That statement runs later, and has a snapshot of
 * its own. */
inline look(x_l) {
    d_step {
        read_rows(x_l);
        todo = NOTHING;
#ifdef WRONG_KEPT
        s_heir = 0;
#endif
        first_entry(x_l, 0);
        if
        :: pick == 0
#ifdef WRONG_15     /* a row that the reaper has deleted is not restored */
        :: pick != 0 && !present[x_l]
#else
        :: pick != 0 && !present[x_l] ->    /* make_lock */
            present[x_l] = 1; token[x_l] = floor; made[x_l]++;
            FLUSH;
            todo = LOOK
#endif
        :: pick != 0 && present[x_l] ->
            whose = 0; i = 1;
            do
            :: i <= CLIENTS -> whose = (SWEEPABLE(x_l, i) -> i : whose); i++
            :: else -> break
            od;
            i = 0;
            if
            :: TO_CLEAR(x_l) -> todo = CLEAR
            :: !TO_CLEAR(x_l) && whose != 0 -> todo = SWEEP
            :: else ->
                if
                :: WEIGHT(x_l, pick) == SOLE && s_free -> todo = GRANT_SOLE
                :: WEIGHT(x_l, pick) != SOLE && sole[x_l] == 0 -> todo = GRANT_COUNTED
                :: else
                fi
            fi
        fi;
        if
        :: todo == CLEAR || todo == SWEEP   /* these judge in this snapshot */
        :: else -> forget_rows(); broken = 0
        fi
    }
}

/* A dead sole holder goes by compare-and-set. */
inline clear_sole(x_l) {
    atomic {
        LOCKABLE(x_l);
        d_step {
            if
#ifdef WRONG_CLEAR  /* by name */
            :: INTACT && present[x_l] && sole[x_l] != 0 ->
#else
            :: INTACT && present[x_l] && token[x_l] == s_token && sole[x_l] == s_sole ->
#endif
                robbed[sole[x_l]] = robbed[sole[x_l]] || (!row_over[x_l] && sole[x_l] != 0 && there[sole[x_l]] && !ended[sole[x_l]]);
                FREED(x_l);
                check_sum(x_l)
            :: else
            fi;
            forget_rows()
        }
    }
}

inline sweep(x_l) {
    atomic {
        if
        :: INTACT && HOLD_DEAD(x_l, whose) && UNLOCKED(x_l, whose) ->
            d_step { hold_locked[AT(x_l, whose)] = 1; s_mine = 1 }
        :: else -> d_step { forget_rows() }
        fi
    }
    if
    :: s_mine ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
                :: INTACT ->
                    robbed[whose] = robbed[whose] || (!over[AT(x_l, whose)] && there[whose] && !ended[whose]);
                    LESS(x_l, hold[AT(x_l, whose)] + MORE(x_l, whose));
#ifdef CRASH
                    more[AT(x_l, whose)] = 0;
#endif
                    NO_HOLD(x_l, whose); hold_locked[AT(x_l, whose)] = 0;
                    check_sum(x_l)
                :: else
                fi;
                forget_rows()
            }
        }
    :: else
    fi
}

/* The reaper has deleted the row since the look, or since the snapshot. */
#ifdef WRONG_GONE       /* then nothing is done */
#define GONE(l) 0
#else
#define GONE(l) (s_waited && !SAME_ROW(l))
#endif
inline grant_next(x_l) {
    atomic {
        d_step {
            todo = GRANT_SOLE;
            read_rows(x_l);
            first_entry(x_l, s_from);
            if
            :: s_free && s_there && pick != 0 -> pick = 0
            :: else -> todo = (GONE(x_l) -> LOOK : NOTHING); forget_rows(); broken = 0
            fi
        }
    }
    if
    :: todo != GRANT_SOLE
    :: else ->
        atomic {
#ifdef WRONG_6      /* SKIP LOCKED */
            if
            :: !LOCKABLE(x_l) -> d_step { todo = NOTHING; forget_rows() }
            :: else
            fi;
            LOCKABLE(x_l) || todo == NOTHING;
#else
            LOCKABLE(x_l);
#endif
            d_step {
                if
                :: todo == NOTHING
                :: todo != NOTHING && INTACT && present[x_l] && token[x_l] == s_token ->
                    first_entry(x_l, s_from);
                    if
                    :: pick != 0 && WEIGHT(x_l, pick) == SOLE && !MEMBERS(pick) -> give_to_pick(x_l, 0); todo = NOTHING
                    :: pick != 0 && WEIGHT(x_l, pick) == SOLE && MEMBERS(pick) -> called[pick] = 1; todo = NOTHING
                    :: pick != 0 && WEIGHT(x_l, pick) != SOLE -> todo = OTHER(LOOK) /* it says that the first is counted */
                    :: else -> todo = LOOK
                    fi
                :: else ->
                    todo = LOOK;
#ifdef WRONG_5      /* assumes that the process that was faster has served the queue */
                    todo = NOTHING;
#endif
#ifdef WRONG_3A     /* the entry is deleted before the row is known to be free */
                    first_entry(x_l, s_from);
                    if
                    :: INTACT && pick != 0 -> NO_ENTRY(x_l, pick)
                    :: else
                    fi;
#endif
                    skip
                fi;
                forget_rows()
            }
        }
    fi
}

/* Without a sole holder, and while no promise of the next token can be kept. */
#ifdef WRONG_KEPT       /* the first entry is served, a promise or not */
#define RESERVED 0
#else
#define RESERVED s_heir
#endif
/* An upgrade adds no hold: the row names it. What it lacks of the room is free if its hold is the only one; that this is
 * the hold of the snapshot, the token says. */
#define LACKS (ROOM - UPGRADES)
#ifdef WRONG_UPGRADE_SERVED     /* the token is not compared */
#define UNCHANGED(l) true
#else
#define UNCHANGED(l) (token[l] == s_token)
#endif
#ifdef WRONG_UPGRADE_FITS       /* more may be free: its hold may have ended */
#define IS_ALONE(l) (used[l] + LACKS <= ROOM)
#else
#define IS_ALONE(l) (used[l] + LACKS == ROOM)
#endif
inline grant_counted(x_l) {
    d_step { read_rows(x_l); s_mine = HAS_ROOM(x_l, 1) }
    atomic {
        LOCKABLE(x_l);
        d_step {
            todo = (GONE(x_l) -> LOOK : NOTHING);
            if
            :: INTACT && SAME_ROW(x_l) && sole[x_l] == 0 && !IS_SEMAPHORE && s_waited && RESERVED == 0 &&
               s_mine && HAS_ROOM(x_l, 1) ->
                s_heir = 0;
                ok = 0;
                do
                :: true ->
                    first_entry(x_l, 0);
                    if
                    /* it is left out, and what it lacks is not given to those behind it */
                    :: pick != 0 && UP(x_l, pick) && !(UNCHANGED(x_l) && IS_ALONE(x_l)) ->
                        seen[pick] = 0; lacks = lacks + LACKS; first_entry(x_l, 0)
                    :: else
                    fi;
#ifdef WRONG_PREFIX     /* serves past a sole waiter */
                    if
                    :: pick != 0 && WEIGHT(x_l, pick) == SOLE -> seen[pick] = 0; first_entry(x_l, 0); ok = 1
                    :: else
                    fi;
#endif
                    if
                    /* served by its client alone, and so is nobody behind it */
                    :: pick != 0 && MEMBERS(pick) && WEIGHT(x_l, pick) != SOLE && HAS_ROOM(x_l, WEIGHT(x_l, pick) + lacks) ->
                        called[pick] = 1; ok = 1; break
                    :: pick != 0 && UP(x_l, pick) && UNCHANGED(x_l) && IS_ALONE(x_l) && lacks == 0 ->
                        new = ABOVE(token[x_l], s_floor) + 1 + LEFT_OUT_COUNTED(x_l);
                        i = place[AT(x_l, pick)];
                        write_upgrade(x_l, i, new);
                        notified[pick] = i; notified_token[pick] = new;
                        i = 0;
                        NO_ENTRY(x_l, pick); seen[pick] = 0; ok = 1; break
                    :: pick != 0 && !MEMBERS(pick) && !UP(x_l, pick) && WEIGHT(x_l, pick) != SOLE &&
                       HAS_ROOM(x_l, WEIGHT(x_l, pick) + lacks) ->
                        x_i = 1;
                        do
                        :: x_i <= CLIENTS ->
                            overtaken = overtaken || (x_i != pick && STANDING(x_l, x_i) && ticket[AT(x_l, x_i)] < ticket[AT(x_l, pick)] &&
                                                       (seen[x_i] == 1 || !UP(x_l, x_i)));
                            x_i++
                        :: else -> break
                        od;
#ifdef FAIR
                        assert(!overtaken);
#else
                        overtaken = 0;
#endif
                        new = ABOVE(token[x_l], s_floor) + 1 + LEFT_OUT_COUNTED(x_l);
                        i = place[AT(x_l, pick)]; whose = WEIGHT(x_l, pick);
                        write_hold(x_l, pick, i, new, whose);
                        i = 0; whose = 0;
                        notified[pick] = hgrant[AT(x_l, pick)]; notified_token[pick] = new;
                        served[x_l] = WATER(x_l, seen[pick]);
                        CLEAR_PROMISE(x_l);
                        NO_ENTRY(x_l, pick); seen[pick] = 0; ok = 1
                    :: else -> break
                    fi
                od;
                /* what is first now, and of another kind */
                todo = ((!ok && pick != 0 && WEIGHT(x_l, pick) == SOLE) -> OTHER(GRANT_SOLE) : NOTHING);
                check_sum(x_l)
            :: INTACT && SAME_ROW(x_l) && sole[x_l] == 0 && s_waited && RESERVED != 0 -> todo = GRANT_SOLE
            :: else
            fi;
            ok = 0;
            forget_rows()
        }
    }
}

inline serve(x_l) {
    todo = LOOK;
    do
    :: todo == LOOK -> look(x_l)
    :: todo == CLEAR -> clear_sole(x_l); todo = LOOK
    :: todo == SWEEP -> sweep(x_l); todo = LOOK
    :: todo == GRANT_SOLE -> grant_next(x_l)
    :: todo == GRANT_COUNTED -> grant_counted(x_l)
    :: todo == NOTHING -> broken = 0; break
    od
}

/* --- takes -------------------------------------------------------------------------------------- */

/* FAIR: no entry that was there when the caller asked is waiting now. */
#ifdef FAIR
inline ask(x_l) {
    before = 0; i = 1;
    do
    :: i <= CLIENTS -> before = (STANDING(x_l, i) -> before | (1 << i) : before); i++
    :: else -> break
    od;
    i = 0; asked = next_ticket
}
inline check_fair(x_l, me) {
    x_i = 1;
    do
    :: x_i <= CLIENTS ->
        overtaken = overtaken || (x_i != (me) && (before & (1 << x_i)) != 0 && STANDING(x_l, x_i) && ticket[AT(x_l, x_i)] < asked);
        x_i++
    :: else -> break
    od;
    assert(!overtaken)
}
#else
#define ask(x_l) skip
#define check_fair(x_l, me) skip
#endif
#ifdef WRONG_PASS   /* a newcomer passes the queue */
#define WAITED 0
#else
#define WAITED s_waited
#endif

#ifdef WRONG_BATCH      /* acquire_all, which compares no token, does not test these on the locked row */
#define EMPTY(l) true
#else
#define EMPTY(l) (used[l] == 0 && !IS_SEMAPHORE)
#endif
/* acquire: sole. The snapshot judges, the write compares the token. `gets` is the token, 0 for none; `held`: it is held,
 * or others wait. */
inline acquire(x_l, me, id, gets, held) {
    gets = 0; held = 0;
    atomic {
        d_step {
            ask(x_l);
            read_rows(x_l);
            s_mine = LIVE(me);
            first_entry(x_l, s_from);
            s_waited = s_heir != 0 || pick != 0;
            pick = 0;
            new = ABOVE(s_token, s_floor) + 1 + LEFT_OUT(x_l, 0);
#ifdef WRONG_1
            i = 1;
            do
            :: i <= CLIENTS -> alive[i] = there[i] && !ended[i]; i++
            :: else -> break
            od;
            i = 0
#endif
        }
        if
        :: !s_free || WAITED || !s_mine -> d_step { held = s_mine; forget_rows() }
        :: else -> running[me] = 1
        fi
    }
    if
    :: s_mine ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
#ifdef WRONG_1  /* after the wait for the lock the row is re-read, the sessions are not */
                :: INTACT && (!present[x_l] || ((sole[x_l] == 0 || !alive[sole[x_l]]) && used[x_l] == 0)) ->
                    new = (new > token[x_l] -> new : token[x_l] + 1);
#elif defined(BATCH)
                :: INTACT && (!present[x_l] || (s_there && made[x_l] == s_row && sole[x_l] == 0 && promised[x_l] == 0 && EMPTY(x_l))) ->
                    new = (present[x_l] -> ABOVE(token[x_l], s_floor) + 1 : new);
#elif defined(WRONG_TOKEN)
                :: INTACT && (!present[x_l] || s_there) ->
#else
                :: INTACT && (!present[x_l] || (s_there && token[x_l] == s_token)) ->
#endif
                    made[x_l] = (present[x_l] -> made[x_l] : made[x_l] + 1);
                    gets = new;
                    write_sole(x_l, me, id, new, 0);
                    row_deadline[x_l] = 0; row_over[x_l] = 0;
                    promised[x_l] = 0;
                    check_sum(x_l);
                    check_fair(x_l, me);
                    FLUSH_GRANT
                :: else
                fi;
                running[me] = 0; older[me] = 0;
                forget_rows()
            }
        }
    :: else
    fi
}

#ifdef RETAKE
/* reacquire: by the token it was released with. */
inline reacquire(x_l, me, id, with, gets) {
    gets = 0;
    atomic {
        d_step {
            read_rows(x_l);
            s_mine = LIVE(me) && present[x_l] && sole[x_l] == 0 && promised[x_l] == 0 && floor <= with;
#ifndef WRONG_RETAKE    /* checks that it is free, not that no other client has held it since */
            s_mine = s_mine && token[x_l] == with;
#else
            s_mine = s_mine && used[x_l] == 0;
#endif
            i = 1;
            do
            :: i <= CLIENTS -> s_mine = s_mine && ticket[AT(x_l, i)] == 0; i++
            :: else -> break
            od;
            i = 0
        }
        if
        :: !s_mine -> d_step { forget_rows() }
        :: else
        fi
    }
    if
    :: s_mine ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
#ifdef WRONG_RETAKE
                :: INTACT && present[x_l] && sole[x_l] == 0 && used[x_l] == 0 ->
#else
                :: INTACT && present[x_l] && sole[x_l] == 0 && promised[x_l] == 0 && token[x_l] == with ->
#endif
                    gets = with + 1;
                    write_sole(x_l, me, id, gets, 0);
                    check_sum(x_l);
                    FLUSH_GRANT
                :: else
                fi;
                forget_rows()
            }
        }
    :: else
    fi
}
#endif

/* take: counted. R1: the row's own columns decide. Asynchronous. */
#ifdef WRONG_R5     /* beside a sole holder, too */
#define NOT_SOLE(l) true
#elif defined(WRONG_R1)     /* judges the sole holder's session in the write that takes */
#define NOT_SOLE(l) (sole[l] == 0 || !alive[sole[l]])
#else
#define NOT_SOLE(l) (sole[l] == 0)
#endif
#ifdef WRONG_COUNT  /* adds up the holds that it sees */
#define FITS(l, w) (!IS_UPGRADED(l) && s_sum + (w) <= ROOM)
#else
#define FITS(l, w) (HAS_ROOM(l, w) && !IS_SEMAPHORE)
#endif
#ifdef WRONG_R4_TAKE    /* the token is not raised */
#define RAISED 0
#else
#define RAISED 1
#endif
inline take(x_l, me, id, weight, gets, held) {
    gets = 0; held = 0;
    atomic {
        d_step {
            ask(x_l);
            read_rows(x_l);
            s_mine = LIVE(me);
#ifdef WRONG_FROM       /* reads its queue from the watermark on, where an upgrade is not */
            first_entry(x_l, s_from);
            s_waited = s_heir != 0 || pick != 0;
            pick = 0;
#endif
#ifdef WRONG_R1
            i = 1;
            do
            :: i <= CLIENTS -> alive[i] = there[i] && !ended[i]; i++
            :: else -> break
            od;
            i = 0;
            s_dead = 0;
#endif
#ifdef WRONG_COUNT
            s_sum = 0; i = 1;
            do
            :: i <= CLIENTS -> s_sum = s_sum + hold[AT(x_l, i)]; i++
            :: else -> break
            od;
            i = 0;
#endif
            if
            :: !s_mine || WAITED -> pick = 1    /* nothing */
            :: s_mine && !WAITED && !s_there -> pick = 2
            :: s_mine && !WAITED && s_there && s_dead -> pick = 3
            :: s_mine && !WAITED && s_there && !s_dead && !(NOT_SOLE(x_l) && FITS(x_l, weight)) -> pick = 1
            :: else -> running[me] = 1
            fi
        }
        if
        :: pick == 1 -> d_step { held = s_mine; forget_rows() }
        :: pick == 2 -> d_step { pick = 0; running[me] = 1; s_mine = 0 }     /* make_lock */
        :: pick == 3 -> d_step { pick = 0; s_mine = 0 }
        :: else
        fi
    }
    if
    :: s_mine ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
                :: INTACT && SAME_ROW(x_l) && NOT_SOLE(x_l) && FITS(x_l, weight) ->
#ifdef WRONG_R1
                    FREED(x_l);
#endif
                    gets = ABOVE(token[x_l], s_floor) + RAISED + LEFT_OUT_COUNTED(x_l);
                    write_hold(x_l, me, id, gets, weight);
                    CLEAR_PROMISE(x_l);
                    check_sum(x_l);
                    check_fair(x_l, me)
                :: else
                fi;
                running[me] = 0; older[me] = 0;
#ifdef WRONG_COUNT
                s_sum = 0;
#endif
                forget_rows()
            }
        }
    :: !s_mine && running[me] ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
                :: INTACT && !present[x_l] -> present[x_l] = 1; token[x_l] = s_floor; made[x_l]++; FLUSH
                :: else
                fi;
                running[me] = 0; older[me] = 0;
                forget_rows()
            }
        }
    :: !s_mine && s_dead -> clear_sole(x_l)
    :: else
    fi
}

/* --- changes of what is held -------------------------------------------------------------------- */

/* An upgrade is a look, then a write that compares the token. It locks no hold. `as` is its grant id; `held`: others hold,
 * too. */
#ifdef WRONG_UPGRADE_TOKEN      /* the write compares no token */
#define PROVED(l) (used[l] == pick)
#elif defined(WRONG_UPGRADE_USED)       /* nor what is used */
#define PROVED(l) (token[l] == s_token)
#else
#define PROVED(l) (token[l] == s_token && used[l] == pick)
#endif
#ifdef WRONG_UPGRADE_NULL       /* nor that the row names nobody */
#define NAMES_NOBODY(l) true
#else
#define NAMES_NOBODY(l) (sole[l] == 0 && grant[l] == 0)
#endif
inline upgrade_look(x_l, me, id, alone, held) {
    d_step {
        e = EPOCH; s_token = token[x_l]; pick = hold[AT(x_l, me)];
        alone = LIVE(me) && HOLDS(x_l, me, id) && !over[AT(x_l, me)];
        held = alone && (used[x_l] != pick || sole[x_l] != 0 || IS_UPGRADED(x_l));
        alone = alone && !held;
#ifdef WRONG_R4_UPGRADE
        new = s_token;
#else
        new = ABOVE(s_token, floor) + 1 + LEFT_OUT(x_l, 0);
#endif
        if
        :: !alone -> forget_rows()
        :: else
        fi
    }
}
inline upgrade_lock(x_l, as, gets) {
    atomic {
        LOCKABLE(x_l);
        d_step {
            gets = 0;
            if
            :: INTACT && present[x_l] && PROVED(x_l) && NAMES_NOBODY(x_l) ->
                gets = new;
                write_upgrade(x_l, as, new);
                FLUSH_GRANT
            :: else
            fi;
            forget_rows()
        }
    }
}

/* end_upgrade: the hold was there all the time, and is locked first; it may get a greater weight, `more`. drop_upgrade: nobody
 * has believed in it, and the hold is not locked. R4. */
#ifdef WRONG_UPGRADE_NAME       /* by the name alone */
#define ITS_UPGRADE(l, g) IS_UPGRADED(l)
#else
#define ITS_UPGRADE(l, g) UPGRADE(l, g)
#endif
inline end_upgrade(x_l, me, as, believed, more_, did) {
    did = 0;
    atomic {
#ifdef WRONG_UPGRADE_LOCK       /* the hold is not locked */
        d_step { e = EPOCH; s_mine = ITS_UPGRADE(x_l, as) && (!believed || hold[AT(x_l, me)] != 0) }
#else
        !(believed && ITS_UPGRADE(x_l, as) && hold[AT(x_l, me)] != 0) ||
        (!hold_locked[AT(x_l, me)] && hold_shared[AT(x_l, me)] == 0);
        d_step {
            e = EPOCH; s_mine = ITS_UPGRADE(x_l, as) && (!believed || hold[AT(x_l, me)] != 0);
            hold_locked[AT(x_l, me)] = hold_locked[AT(x_l, me)] || (believed && s_mine)
        }
#endif
        if
        :: !s_mine -> d_step { forget_rows() }
        :: else
        fi
    }
    if
    :: s_mine ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
                :: INTACT && ITS_UPGRADE(x_l, as) ->
                    did = 1;
                    grant[x_l] = 0;
#ifndef WRONG_R4_DOWNGRADE
                    token[x_l] = token[x_l] + 1;
#endif
                    if
                    :: more_ != 0 ->
                        used[x_l] = used[x_l] - hold[AT(x_l, me)] + more_;
                        hold[AT(x_l, me)] = more_; htoken[AT(x_l, me)] = token[x_l]
                    :: else
                    fi;
                    check_sum(x_l);
                    FLUSH_CHANGE
                :: else
                fi;
#ifndef WRONG_UPGRADE_LOCK
                if
                :: INTACT && believed -> hold_locked[AT(x_l, me)] = 0
                :: else
                fi;
#endif
                forget_rows()
            }
        }
    :: else
    fi
}

/* lower: a sole hold becomes a counted one. R4. */
inline lower(x_l, me, id, weight, did) {
    did = 0;
    d_step { e = EPOCH; s_mine = MINE(x_l, me, id) }
    atomic {
        LOCKABLE(x_l) || !s_mine;
        d_step {
            if
            :: s_mine && INTACT && MINE(x_l, me, id) && used[x_l] == 0 ->
                did = 1;
                new = token[x_l] + 1 + LEFT_OUT(x_l, 0);
#ifdef WRONG_R4_LOWER
                new = token[x_l];
#endif
                pick = row_deadline[x_l]; s_dead = row_over[x_l];
                FREED(x_l);
                write_hold(x_l, me, id, new, weight);
                deadline[AT(x_l, me)] = CARRIED(pick); over[AT(x_l, me)] = CARRIED(s_dead);
                CLEAR_PROMISE(x_l);
                told(x_l, id, new);
                check_sum(x_l);
                FLUSH_CHANGE
            :: else
            fi;
            forget_rows()
        }
    }
}

/* shrink: names the weight before, and the hold's token. */
#ifdef WRONG_SHRINK     /* the weight alone */
#define HAS_TOKEN(l, c, t) true
#else
#define HAS_TOKEN(l, c, t) (htoken[AT(l, c)] == (t))
#endif
inline shrink(x_l, me, id, from, with, to, did) {
    did = 0;
    atomic {
        !hold_locked[AT(x_l, me)] && hold_shared[AT(x_l, me)] == 0;
        d_step {
            e = EPOCH; s_mine = HOLDS(x_l, me, id) && hold[AT(x_l, me)] == from && HAS_TOKEN(x_l, me, with);
            hold_locked[AT(x_l, me)] = s_mine;
            if
            :: !s_mine -> forget_rows()
            :: else
            fi
        }
    }
    if
    :: s_mine ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
                :: INTACT ->
                    did = 1;
                    used[x_l] = used[x_l] - (from - to); hold[AT(x_l, me)] = to; hold_locked[AT(x_l, me)] = 0;
                    check_sum(x_l);
                    FLUSH_CHANGE
                :: else
                fi;
                forget_rows()
            }
        }
    :: else
    fi
}

/* --- releases ----------------------------------------------------------------------------------- */

#ifdef WRONG_NAME   /* freed by its name alone */
#define RELEASABLE(l, c, g) (present[l] && sole[l] != 0)
#else
#define RELEASABLE(l, c, g) MINE(l, c, g)
#endif
/* hand_over: `did` is whether it freed this grant, `whom` the client that was served. A counted entry is not: then the row
 * is freed, and the queue served after that. */
inline hand_over(x_l, my, id, did, whom) {
    did = 0; whom = 0;
    atomic {
        d_step {
            read_rows(x_l);
            s_mine = RELEASABLE(x_l, my, id)
        }
        if
        :: !s_mine -> d_step { forget_rows() }
        :: else
        fi
    }
    if
    :: s_mine ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
                :: INTACT && RELEASABLE(x_l, my, id) ->
                    did = 1;
                    first_entry(x_l, s_from);
                    if
                    :: pick != 0 && WEIGHT(x_l, pick) == SOLE && !MEMBERS(pick) -> whom = pick; give_to_pick(x_l, my)
                    :: else ->
                        called[pick] = called[pick] || (pick != 0 && MEMBERS(pick));
                        FREED(x_l); check_sum(x_l)  /* asynchronously: no FLUSH */
                    fi
                :: else
                fi;
                forget_rows()
            }
        }
    :: else
    fi
}

/* give: also of an upgraded hold. Hold first, row second (R2). Asynchronous. */
inline give(x_l, me, id, did) {
    did = 0;
#ifdef WRONG_STALE
    d_step { stale = hold[AT(x_l, me)] }
#endif
    atomic {
        !HOLDS(x_l, me, id) || (!hold_locked[AT(x_l, me)] && hold_shared[AT(x_l, me)] == 0);
        d_step {
            e = EPOCH; s_mine = HOLDS(x_l, me, id);
            if
            :: s_mine ->
                hold_locked[AT(x_l, me)] = 1;
#ifdef WRONG_STALE      /* lowers the row by a weight that was read before the hold was locked: see client */
                pick = stale
#else
                pick = hold[AT(x_l, me)]
#endif
            :: else -> forget_rows()
            fi
        }
    }
    if
    :: s_mine ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
                :: INTACT ->
                    did = 1;
                    LESS(x_l, pick);
                    NO_HOLD(x_l, me); hold_locked[AT(x_l, me)] = 0;
                    check_sum(x_l)
                :: else
                fi;
                forget_rows()
            }
        }
    :: else
    fi
}

#ifdef PROMISE
/* confirm_and_read_next: the next waiter and the one after it; what the row promises is on disk afterwards. A counted entry
 * is neither passed on to nor promised anything. */
inline settle(x_l, my, id) {
    d_step {
        next = 0; after = 0; kept = 0;
        read_rows(x_l);
        if
        :: MINE(x_l, my, id) ->
            next = s_heir;
            kept = s_heir != 0;
            i = 1;
            do
            :: i <= CLIENTS ->
                next = ((!kept && seen[i] > 1 && (next == 0 || seen[i] < seen[next])) -> i : next);
                i++
            :: else -> break
            od;
            i = 1;
            do
            :: i <= CLIENTS ->
                after = ((seen[i] > 1 && i != next && (after == 0 || seen[i] < seen[after])) -> i : after);
                i++
            :: else -> break
            od;
            i = 0;
            next = ((next != 0 && WEIGHT(x_l, next) == SOLE) -> next : 0);
            next_ticket_seen = (next != 0 -> ticket[AT(x_l, next)] : 0);
            after = ((after != 0 && WEIGHT(x_l, after) == SOLE) -> place[AT(x_l, after)] : 0);
#ifndef WRONG_UNSETTLED /* what the row promises need not be on disk */
            FLUSH
#endif
        :: else
        fi;
        forget_rows();
        broken = 0
    }
}

/* hand_over_to: to the waiter that settle read, with a promise to the one behind it. */
#define PASSABLE(l, c, g) (MINE(l, c, g) && ticket[AT(l, next)] == next_ticket_seen)
inline pass_on(x_l, my, id, did, whom) {
    did = 0; whom = 0;
    atomic {
        d_step {
            read_rows(x_l);
            s_mine = PASSABLE(x_l, my, id)
        }
        if
        :: !s_mine -> d_step { forget_rows() }
        :: else
        fi
    }
    if
    :: s_mine ->
        atomic {
            LOCKABLE(x_l);
            d_step {
                if
                :: INTACT && PASSABLE(x_l, my, id) ->  /* else the waiter has left: all is rolled back */
                    i = place[AT(x_l, next)]; did = 1; whom = next;
                    new = token[x_l] + 1 + LEFT_OUT(x_l, i);
                    write_sole(x_l, next, i, new, my);
                    i = 0;
                    served[x_l] = WATER(x_l, next_ticket_seen);
                    row_deadline[x_l] = 0; row_over[x_l] = 0;
                    NO_ENTRY(x_l, next);
                    promised[x_l] = after;
#ifdef WRONG_PROMISE    /* no hand-over waits for the disk, whichever waiter is served */
                    promised[x_l] = 0; kept = 1;
#endif
                    check_sum(x_l);
                    if
                    :: kept     /* promised and settled: asynchronously */
                    :: else -> FLUSH
                    fi
                :: else
                fi;
                forget_rows()
            }
        }
    :: else
    fi
}
#endif

#ifdef WRONG_PROMISE
#define PROMISED_TO(g) 0
#else
#define PROMISED_TO(g) g
#endif
#define END_SESSION(c) ended[c] = 1; FLUSH

/* --- processes ---------------------------------------------------------------------------------- */

#define HOME 0
#define UPGRADED 13

#if CLIENTS == 2
#define ANY(l, what) (what(l, 1) || what(l, 2))
#elif CLIENTS == 3
#define ANY(l, what) (what(l, 1) || what(l, 2) || what(l, 3))
#else
#define ANY(l, what) (what(l, 1) || what(l, 2) || what(l, 3) || what(l, 4))
#endif
/* A check of the queue may have an effect. */
#define SERVABLE(l) (ANY(l, STANDING) && (!present[l] || sole[l] == 0 || SOLE_DEAD(l) || ANY(l, SWEEPABLE)))

/* A waiter ends a session that has expired and stops it (end_expired_session waits for a heartbeat that has the row), and
 * looks for what the dead hold, by the clock: both are polls. */
#define EXPIRED(l, c) (there[c] && !ended[c] && expires[c] == PAST && !beating[c] && \
                       (sole[l] == (c) || hold[AT(l, c)] != 0 || ticket[AT(l, c)] != 0))
inline end_expired(x_l, me) {
    d_step {
        ANY(x_l, EXPIRED) ->
        i = 1;
        do
        :: i <= CLIENTS && EXPIRED(x_l, i) -> END_SESSION(i); break
        :: else -> i++
        od;
        i = 0; due[AT(x_l, me)] = 1
    }
}
#define POLLED(l, me) (!due[AT(l, me)] && !at_work[AT(l, me)] && (ANY(l, SWEEPABLE) || (sole[l] != 0 && row_over[l])))

inline doubt(who) {
    d_step { mode[AT(HOME, who)] = 0 }
}

#ifdef FENCE
/* A transaction of the caller's: fence, a write, COMMIT. The client may have been suspended before each of them. */
inline close_fence() {
    d_step {
        if
        :: open && opened == EPOCH -> hold_shared[AT(HOME, s)]--; fmode[AT(HOME, s)] = 0
        :: else
        fi;
        open = 0; opened = 0
    }
}
inline fence_hold() {
    d_step { e = EPOCH; s_mine = HOLDS(HOME, s, g) && !over[AT(HOME, s)] && !ended[s] }
    if
    :: s_mine ->
        atomic {
            !hold_locked[AT(HOME, s)] || !INTACT;
            d_step {
                if
                :: INTACT && HOLDS(HOME, s, g) && !over[AT(HOME, s)] ->
                    stale_write = t < written || (has == UPGRADED && t < read_at);
                    assert(!stale_write);
                    written = (has == UPGRADED -> t : written);
                    read_at = ((has != UPGRADED && t > read_at) -> t : read_at);
                    open = 1; opened = e; hold_shared[AT(HOME, s)]++;
                    fmode[AT(HOME, s)] = (has == UPGRADED -> ROOM : has);
                    check_overlap(HOME)
                :: else
                fi;
                s_mine = 0; e = 0
            }
        }
        if
        :: close_fence()
        :: has == UPGRADES      /* it stays open: an upgrade follows */
        :: has == UPGRADED && open -> run transaction(s, opened); d_step { open = 0; opened = 0 }   /* in another thread */
        fi
    :: else -> e = 0
    fi
}
inline fence_sole() {
    d_step { e = EPOCH; s_mine = MINE(HOME, s, g) && token[HOME] == t && !ended[s] && !row_over[HOME] }
    if
    :: s_mine ->
#ifndef WRONG_FENCE     /* the write is not fenced */
        atomic {
            LOCKABLE(HOME);
            d_step {
                if
                :: INTACT && MINE(HOME, s, g) && token[HOME] == t ->
                    row_fenced[HOME] = 1; fmode[AT(HOME, s)] = ROOM;
                    check_overlap(HOME)
                :: else -> s_mine = 0
                fi
            }
        }
        if
        :: s_mine ->
#endif
            if
            :: d_step {
                if
                :: INTACT ->
                    stale_write = t < written || t < read_at;
                    assert(!stale_write);
                    written = t;
#ifndef WRONG_FENCE
                    row_fenced[HOME] = 0; fmode[AT(HOME, s)] = 0
#endif
                :: else
                fi;
                s_mine = 0 }
#ifndef WRONG_FENCE
            /* killed within the transaction: the server rolls it back, and serves no queue */
            :: atomic { INTACT && deaths > 0 && !due[s] && !at_work[s] ->
                        d_step { deaths--; row_fenced[HOME] = 0; fmode[AT(HOME, s)] = 0; s_mine = 0; e = 0 }
                        goto killed }
#endif
            fi
#ifndef WRONG_FENCE
        :: else
        fi
#endif
    :: else
    fi;
    e = 0
}
#endif

#ifdef FENCE
/* The rest of a transaction. */
proctype transaction(byte s; byte opened) {
    d_step {
        if
        :: opened == EPOCH -> hold_shared[AT(HOME, s)]--; fmode[AT(HOME, s)] = 0
        :: else
        fi
    }
}
#endif

#ifdef LATE
byte unresolved[CLIENTS + 1];   /* what the heartbeat is to end: an upgrade that its client neither found nor looks for */
#define FOUND 255
#ifdef WRONG_UPGRADE_WAITS      /* that waits for the caller's fence */
#define WAITS_FOR_FENCE 1
#else
#define WAITS_FOR_FENCE 0
#endif
/* A statement whose reply was lost, and which runs on. */
proctype late(byte s; byte g; byte u; byte what; byte at; byte alone; byte with) {
    STATEMENT;
    byte got;
    if
    :: what == 0 ->
        d_step { e = EPOCH; s_token = at; pick = alone; new = with }
        upgrade_lock(HOME, u, got);
        unresolved[s] != 0;
#ifndef WRONG_UPGRADE_LOST      /* the heartbeat does not end it */
        if
        :: unresolved[s] == u -> end_upgrade(HOME, s, u, WAITS_FOR_FENCE, 0, got); due[s] = due[s] || got
        :: else
        fi
#endif
    :: what == 1 -> shrink(HOME, s, g, UPGRADES, at, SHARED, got); due[s] = due[s] || got
    :: what == 2 -> lower(HOME, s, g, SHARED, got); due[s] = due[s] || got
    :: what == 3 -> end_upgrade(HOME, s, u, 1, alone, got); due[s] = due[s] || got
    fi;
    d_step { got = 0; broken = 0 }
}
#define LOST_REPLY(what, u, at, alone, with) atomic { replies_lost > 0 -> replies_lost--; run late(s, g, u, what, at, alone, with) }
#define LEAVE(id) unresolved[s] = (unresolved[s] == 0 -> (id) : unresolved[s])
#define LEAVE_LOST unresolved[s] = (lost_u != 0 -> lost_u : unresolved[s]); lost_u = 0
#else
#define LEAVE(id) skip
#define LEAVE_LOST skip
#endif

/* The caller of a client whose grant was taken away may never release it. */
#if defined(FORCE) || defined(REQUEST)
inline may_not_answer() {
    if
    :: atomic { taken_away[s] -> goto finished }
    :: true
    fi
}
#else
#define may_not_answer() skip
#endif

/* A client: the thread that locks, and what its waiter loop does while that thread waits. */
proctype client(byte s) {
    STATEMENT;
    byte g, u, t, got, whom, rounds, attempt, connected, has, w;
    bit repeated, given_up;
#ifdef AGAIN
    bit again_upgraded;
#endif
#ifdef LATE
    byte lost_u;
#endif
#ifdef RISES
    bit risen;
#define BEFORE_UPGRADE (risen -> SHARED : UPGRADES)
#define MORE_AFTER (risen -> UPGRADES : 0)
#else
#define BEFORE_UPGRADE UPGRADES
#define MORE_AFTER 0
#endif
#if defined(WRONG_1) || defined(WRONG_R1)
    bit alive[CLIENTS + 1];
#endif
#ifdef WRONG_COUNT
    byte s_sum;
#endif
#ifdef FAIR
    byte before, asked;
#endif
#ifdef RETAKE
    byte freed_with;
#endif
#ifdef PROMISE
    byte next, next_ticket_seen, after;
    bit kept;
#endif
#ifdef FENCE
    bit open;
    byte opened;
#endif

#if defined(CHAIN)
#ifdef QUIET
    d_step { g = 8 * s + 1; attempt = 1; rounds = ROUNDS }
#else
    d_step { g = 8 * s + 1; attempt = 1; rounds = (s == 3 -> 0 : ROUNDS) }
#endif
    if
    :: s == 1 -> t = 2; has = SOLE; goto holding
    :: s == 2 -> goto in_line
    :: else
    fi;
#elif defined(HELD)
    d_step { g = 8 * s + 1; attempt = 1; rounds = 1 }
    if
#ifdef QUEUED
    :: s == 1 -> t = 1; has = C1; u = 10; attempt = 2; goto look_at_upgrade
#ifdef RETURNS
    :: s == 2 -> rounds = 0; goto next_round
#else
    :: s == 2 -> goto finished
#endif
    :: s > 2 -> goto enqueue
#else
    :: s == 1 -> t = 1; has = C1; goto holding
    :: else -> goto enqueue
#endif
    fi;
#else
    d_step { there[s] = 1; expires[s] = FAR; trust[s] = 1; connected = EPOCH; FLUSH }
#endif

next_round:
    atomic {
        if
        :: !trust[s] -> goto lost
        :: trust[s] && rounds == ROUNDS -> goto finished
        :: else
        fi;
#ifdef MIX
        wants = ((s == 1 && rounds > 0) -> SOLE : wants);
#endif
        d_step { rounds++; repeated = 0; has = 0 }
    }
attempt_anew:
    skip;
    d_step { attempt++; g = 8 * s + attempt; knows[s] = g; connected = EPOCH }
again:
#ifdef RETAKE
    if
    :: freed_with != 0 ->
        reacquire(HOME, s, g, freed_with, got);
        freed_with = 0;
        if
        :: got != 0 -> goto granted
        :: else
        fi
    :: else
    fi;
#endif
    if
    :: WANT(s) == SOLE -> acquire(HOME, s, g, got, whom)
    :: else -> w = WANT(s); take(HOME, s, g, w, got, whom); w = 0
    fi;
    atomic {
        if
        :: !trust[s] -> goto lost
#ifdef SEMAPHORE
        :: trust[s] && got == 0 && semaphore -> goto finished      /* refused */
#endif
        :: trust[s] && broken ->        /* find, and what it reads made durable */
            d_step {
                broken = 0; whom = 0;
                got = ((MINE(HOME, s, g) || HOLDS(HOME, s, g)) -> 1 : 0);
                FLUSH
            }
            if
            :: got != 0 -> goto granted
            :: else -> goto attempt_anew
            fi
        :: trust[s] && !broken && got != 0 -> goto granted
        :: trust[s] && !broken && got == 0 && whom == 0 -> goto again
        :: else -> whom = 0
        fi
    }

/* The ticket is drawn before the entry becomes visible. */
enqueue:
    skip;
#ifdef FAIR
    d_step { ticket[AT(HOME, s)] = next_ticket; place[AT(HOME, s)] = g; next_ticket++ }
#else
    d_step { e = EPOCH; got = next_ticket; next_ticket++ }
    d_step {
        if
        :: INTACT -> ticket[AT(HOME, s)] = got; place[AT(HOME, s)] = g
        :: else -> broken = 1
        fi;
        got = 0; e = 0
    }
    if
    :: broken -> broken = 0; goto attempt_anew
    :: else
    fi;
#endif

/* Checks its queue entry: when the enqueue has committed, and when it has reconnected. */
look_at_entry:
#ifdef SEMAPHORE
    skip;
    d_step {
        called[s] = 0;
        if
        :: semaphore && ticket[AT(HOME, s)] != 0 -> NO_ENTRY(HOME, s); knows[s] = 0
        :: else
        fi
    }
    if
    :: semaphore && knows[s] == 0 -> goto finished
    :: else
    fi;
#endif
    atomic {
        d_step {
            waiting[s] = 1;
            connected = EPOCH;
            if
            :: notified[s] == g
            :: notified[s] != g && !LIVE(s) -> got = 1
            :: notified[s] != g && LIVE(s) && ticket[AT(HOME, s)] == 0 && (MINE(HOME, s, g) || HOLDS(HOME, s, g)) ->
                notified[s] = g; notified_token[s] = token[HOME]
            :: notified[s] != g && LIVE(s) && ticket[AT(HOME, s)] == 0 && !(MINE(HOME, s, g) || HOLDS(HOME, s, g)) -> got = 2
            :: notified[s] != g && LIVE(s) && ticket[AT(HOME, s)] != 0 && SERVABLE(HOME) -> due[s] = 1
            :: else
            fi
        }
        if
        :: got == 1 -> goto lost
        :: got == 2 -> got = 0; waiting[s] = 0; goto attempt_anew   /* a crash has lost it */
        :: else
        fi
    }

in_line:
    if
    :: atomic { notified[s] == g -> waiting[s] = 0 }; goto granted
    :: !trust[s] -> goto lost
#ifdef SEMAPHORE
    :: called[s] -> goto look_at_entry
#endif
#ifdef CRASH
    :: epoch != connected -> goto look_at_entry
#endif
    /* cancel waits for a grant that has the ticket. */
    :: atomic { cancels > 0 && notified[s] != g ->
                d_step {
                    cancels--;
                    waiting[s] = 0;
                    if
                    :: ticket[AT(HOME, s)] != 0 && place[AT(HOME, s)] == g ->
                        NO_ENTRY(HOME, s); knows[s] = 0; due[s] = 1;
                        FLUSH
                    :: else -> got = 1
                    fi
                }
                if
                :: got == 1 -> got = 0; has = WANT(s); goto release    /* it was served after all; given back */
                :: else -> goto next_round
                fi }
    :: atomic { deaths > 0 && !due[s] && !at_work[s] -> deaths--; goto killed }
#ifdef WRONG_CLOCK
    :: atomic { FREE(HOME) && sole[HOME] != 0 && there[sole[HOME]] && !ended[sole[HOME]] && !due[s] && !at_work[s] ->
                due[s] = 1 }; goto in_line
#else
    :: end_expired(HOME, s); goto in_line
#endif
    :: d_step { POLLED(HOME, s) -> due[s] = 1 }; goto in_line
#ifdef WATERMARK
    /* Its entry was overtaken: reset_watermark, which is found by a poll as well. */
#ifndef WRONG_WATERMARK
    :: d_step { ticket[AT(HOME, s)] != 0 && ticket[AT(HOME, s)] <= served[HOME] && LOCKABLE(HOME) ->
                served[HOME] = ticket[AT(HOME, s)] - 1; due[s] = 1 }; goto in_line
#endif
#endif
    fi;

granted:
    atomic {
        if
        :: !trust[s] -> goto lost
        :: trust[s] && WANT(s) != SOLE ->   /* it reads its hold, and flushes, before anybody learns of it */
            d_step {
                got = 0; whom = 0; notified[s] = 0; notified_token[s] = 0;
                if
                :: HOLDS(HOME, s, g) ->
                    FLUSH_READ;
                    has = WANT(s); t = htoken[AT(HOME, s)];
                    told(HOME, g, t)
                :: else
                fi
            }
            if
            :: has == 0 -> goto attempt_anew
            :: has != 0 && !taken_away[s] -> believe(HOME, s, has)
            :: else
            fi
        :: trust[s] && WANT(s) == SOLE ->
            if
            :: !taken_away[s] -> believe(HOME, s, ROOM)
            :: else
            fi;
            d_step { t = notified_token[s]; notified[s] = 0; notified_token[s] = 0; got = 0; whom = 0; has = SOLE }
        fi
    }
holding:
    if
    :: atomic { deaths > 0 && !due[s] && !at_work[s] -> deaths--; goto killed }
    :: true
    fi;
    may_not_answer();
#ifdef FENCE
    if
    :: has == SOLE -> fence_sole()
    :: else -> fence_hold()
    fi;
#endif
#ifdef PROMISE
    if
    :: has == SOLE ->
        settle(HOME, s, g);
        if
        :: next != 0 ->
            doubt(s);
            pass_on(HOME, s, g, got, whom);
            d_step { next = 0; next_ticket_seen = 0; after = 0; kept = 0 }
            if
            :: got -> goto released
            :: else
            fi
        :: else
        fi
    :: else
    fi;
#endif

    if
    :: WANT(s) == UPGRADES && has == UPGRADES && !taken_away[s] -> goto upgrading
#ifdef LOWERS
    :: has == SOLE && !taken_away[s] -> goto lowering
#endif
    :: WANT(s) != UPGRADES || taken_away[s] -> goto release
    fi;

/* The hold is upgradeable, and believed so, until it is upgraded. Each attempt has another grant id. */
upgrading:
    skip;
#ifdef LATE
    /* find: an attempt whose reply was lost, first. What it reads is durable. */
    atomic {
        if
        :: trust[s] && lost_u != 0 && UPGRADE(HOME, lost_u) ->
            d_step { u = lost_u; lost_u = 0; unresolved[s] = FOUND; t = token[HOME]; told(HOME, u, t) }
            goto upgraded
        :: else
        fi
    }
#endif
    d_step { attempt++; assert(attempt < 8); u = 8 * s + attempt; knows_up[s] = u; connected = EPOCH }
    upgrade_look(HOME, s, g, got, whom);
    if
#ifdef LATE
    :: atomic { got && lost_u == 0 && replies_lost > 0 ->
                replies_lost--;
                run late(s, g, u, 0, s_token, pick, new);
                d_step { got = 0; lost_u = u; forget_rows() } }
        if
        :: goto upgrading
        :: goto give_up_fence
        fi
#endif
    :: got -> upgrade_lock(HOME, u, got)
    :: !got -> skip
    fi;
    atomic {
        if
        :: broken ->            /* find, and what it reads made durable */
            d_step { broken = 0; whom = 0; got = (UPGRADE(HOME, u) -> token[HOME] : 0); FLUSH }
            if
            :: trust[s] && got == 0 && HOLDS(HOME, s, g) -> goto upgrading
            :: else
            fi
        :: else
        fi;
        if
        :: !trust[s] -> goto lost
        :: trust[s] && got != 0 -> d_step { told(HOME, u, got); t = got; got = 0; whom = 0; LEAVE_LOST } goto upgraded
        :: trust[s] && got == 0 && (!HOLDS(HOME, s, g) || over[AT(HOME, s)]) -> whom = 0; goto give_up_fence
        :: trust[s] && got == 0 && HOLDS(HOME, s, g) && !over[AT(HOME, s)] && whom == 0 -> goto upgrading
        :: else -> whom = 0
        fi
    }
#ifdef RISES
    if
    :: risen -> goto give_up_fence      /* a shared hold does not wait for its upgrade */
    :: else
    fi;
#endif
    /* It waits in the queue, and the heartbeat ends what comes of a lost attempt. */
    d_step {
        LEAVE_LOST;
        attempt++; assert(attempt < 8); u = 8 * s + attempt; knows_up[s] = u;
        if
        :: HOLDS(HOME, s, g) ->
#ifdef WRONG_TAIL   /* the upgrade waits at the end of the queue */
            ticket[AT(HOME, s)] = next_ticket; next_ticket++;
#else
            ticket[AT(HOME, s)] = 1;
#endif
            place[AT(HOME, s)] = u; base[AT(HOME, s)] = g
        :: else
        fi
    }
look_at_upgrade:
    skip;
    atomic {
        d_step {
            waiting[s] = 1;
            connected = EPOCH;
            if
            :: notified[s] == u
            :: notified[s] != u && !LIVE(s) -> got = 1
            :: notified[s] != u && LIVE(s) && ticket[AT(HOME, s)] == 0 && UPGRADE(HOME, u) -> notified[s] = u
            :: notified[s] != u && LIVE(s) && ticket[AT(HOME, s)] == 0 && !UPGRADE(HOME, u) -> got = 2
            :: notified[s] != u && LIVE(s) && ticket[AT(HOME, s)] != 0 && SERVABLE(HOME) -> due[s] = 1
            :: else
            fi
        }
        if
        :: got == 1 -> goto lost
        :: got == 2 && HOLDS(HOME, s, g) -> got = 0; waiting[s] = 0; goto upgrading     /* a crash has lost it */
        :: got == 2 && !HOLDS(HOME, s, g) -> got = 0; waiting[s] = 0; goto give_up_fence
        :: else
        fi
    }
in_line_to_upgrade:
    if
    :: atomic { notified[s] == u && trust[s] -> /* it reads its upgrade, and flushes, before anybody learns of it */
                d_step {
                    waiting[s] = 0; notified[s] = 0; notified_token[s] = 0;
                    if
                    :: UPGRADE(HOME, u) -> FLUSH_READ; t = token[HOME]; told(HOME, u, t); got = 1
                    :: else
                    fi
                }
                if
                :: got -> got = 0; goto upgraded
                :: else -> goto look_at_upgrade     /* its hold has ended, or a crash has undone it */
                fi }
    :: !trust[s] -> goto lost
#ifdef CRASH
    :: epoch != connected -> goto look_at_upgrade
#endif
    :: atomic { (cancels > 0 || taken_away[s]) && notified[s] != u ->
                d_step {
                    cancels = (taken_away[s] -> cancels : cancels - 1);
                    waiting[s] = 0;
                    if
                    :: ticket[AT(HOME, s)] != 0 -> NO_ENTRY(HOME, s); due[s] = 1; FLUSH
                    :: else
                    fi
                }
                goto give_up_fence }
    :: atomic { deaths > 0 && !due[s] && !at_work[s] -> deaths--; goto killed }
    :: end_expired(HOME, s); goto in_line_to_upgrade
    :: d_step { POLLED(HOME, s) -> due[s] = 1 }; goto in_line_to_upgrade
    fi;

upgraded:
    atomic {
        if
        :: !trust[s] -> goto lost
        :: else
        fi;
        has = UPGRADED;
        if
        :: !taken_away[s] -> believe(HOME, s, ROOM)
        :: else
        fi
    }
#ifdef FENCE
    close_fence();
    fence_hold();
#endif
    may_not_answer();
    if
    :: true -> goto release
#ifdef DOWNGRADES
    :: trust[s] && !taken_away[s] ->
downgrading:
        skip;
#ifndef WRONG_UPGRADE_BELIEF    /* it believes in the upgrade until its end is confirmed */
        d_step { mode[AT(HOME, s)] = (mode[AT(HOME, s)] != 0 -> BEFORE_UPGRADE : 0) }
#endif
#ifdef LATE
        if  /* the reply is lost: it repeats that, or leaves it to the heartbeat */
        :: LOST_REPLY(3, u, 0, MORE_AFTER, 0)
        :: atomic { BEFORE_UPGRADE == UPGRADES && replies_lost > 0 -> replies_lost--; run late(s, g, u, 3, 0, 0, 0) }
           goto downgraded
        :: true
        fi;
#endif
        end_upgrade(HOME, s, u, 1, MORE_AFTER, got);
        if
        :: broken -> broken = 0; goto downgrading
        :: else
        fi;
downgraded:
        skip;
        d_step {
            mode[AT(HOME, s)] = (mode[AT(HOME, s)] != 0 -> UPGRADES : 0);
            check_overlap(HOME);
            got = 0; has = UPGRADES; due[s] = 1; knows_up[s] = 0;
#ifdef WRONG_OLD_TOKEN  /* the hold has the token from before the upgrade */
            t = htoken[AT(HOME, s)]
#endif
        }
#ifdef FENCE
        fence_hold();
        close_fence();
#endif
#ifdef AGAIN
        if
        :: !again_upgraded && trust[s] && !taken_away[s] -> again_upgraded = 1; goto upgrading
        :: true
        fi;
#endif
#ifdef SHRINKS
        d_step { mode[AT(HOME, s)] = (mode[AT(HOME, s)] != 0 -> SHARED : 0) }
#ifdef LATE
        if
        :: LOST_REPLY(1, 0, htoken[AT(HOME, s)], 0, 0)
#ifdef RISES    /* and repeats it */
                ; shrink(HOME, s, g, UPGRADES, htoken[AT(HOME, s)], SHARED, got); d_step { got = 0; broken = 0; due[s] = 1 }
#endif
        :: true -> shrink(HOME, s, g, UPGRADES, htoken[AT(HOME, s)], SHARED, got); d_step { got = 0; broken = 0; due[s] = 1 }
        fi
#else
        shrink(HOME, s, g, UPGRADES, htoken[AT(HOME, s)], SHARED, got);
        d_step { got = 0; broken = 0; due[s] = 1 }
#endif
#ifdef RISES
        ;
        if
        :: !risen && trust[s] && !taken_away[s] -> d_step { risen = 1; has = SHARED } goto upgrading
        :: true
        fi
#endif
#endif
#endif
    fi;
    goto release;

#ifdef LOWERS
lowering:
    skip;
    d_step { mode[AT(HOME, s)] = (mode[AT(HOME, s)] != 0 -> SHARED : 0) }
#ifdef LATE
    if
#ifdef WRONG_ORDER  /* first what is counted */
    :: LOST_REPLY(2, 0, 0, 0, 0); has = SHARED; goto release
#else
    :: LOST_REPLY(2, 0, 0, 0, 0); goto release
#endif
    :: true
    fi;
#endif
    lower(HOME, s, g, SHARED, got);
    atomic {
        if
        :: broken -> broken = 0; goto lowering
        :: else
        fi;
        if
        :: got -> d_step { got = 0; has = SHARED; due[s] = 1 }
        :: else     /* lowered already, before a crash; or gone */
            d_step { has = (HOLDS(HOME, s, g) -> SHARED : SOLE) }
        fi
    }
    may_not_answer();
    goto release;
#endif

give_up_fence:
    skip;
    d_step { LEAVE_LOST }
release:
    skip;
    doubt(s);
#ifdef FENCE
    close_fence();
#endif
    if
    :: has == SOLE -> hand_over(HOME, s, g, got, whom)
    :: has != SOLE -> give(HOME, s, g, got)
    fi;
    if
    :: broken -> broken = 0; goto release
    :: else
    fi;
released:
    atomic {
        if
        :: got && whom == 0 ->  /* no waiter was served: check again after the commit */
#ifdef WRONG_4
            due[s] = has != SOLE || due[s];
#elif defined(WRONG_SILENT)
            due[s] = has == SOLE || due[s];
#else
            due[s] = 1;
#endif
#ifdef RETAKE
#ifdef WRONG_REMEMBERS  /* the token of a counted grant is remembered, too */
            freed_with = t;
#else
            freed_with = (has == SOLE -> t : 0);
#endif
#endif
            skip
        :: else
        fi;
#ifdef CRASH
        if
        :: !got && !given_up -> goto give_up
        :: else
        fi;
#endif
#ifdef LATE
        /* After a lost reply to `lower` it looks for a sole hold, then for what that was lowered to. */
        if
        :: WANT(s) == SOLE && !got && !given_up -> given_up = 1; has = (has == SOLE -> SHARED : SOLE); goto release
        :: else
        fi;
#endif
        d_step { got = 0; whom = 0 }
#ifdef REPLIES
        if
        :: !repeated -> repeated = 1; goto release
        :: true
        fi;
#endif
        d_step { knows[s] = 0; knows_up[s] = 0; u = 0; t = 0; given_up = 0; has = 0 }
        goto next_round
    }

#ifdef CRASH
/* No longer this grant's. If a crash lost the hand-over, the queue entry may be back, or about to be served: the client
 * deletes it first and then releases again (src/lock/session/upkeep.cpp, give_up and resolve_unknown). */
give_up:
    atomic {
        given_up = 1;
        if
        :: place[AT(HOME, s)] == g && !UP(HOME, s) ->
            d_step {
                NO_ENTRY(HOME, s); due[s] = 1; knows[s] = 0; knows_up[s] = 0; u = 0; t = 0; given_up = 0; has = 0;
                FLUSH
            }
            goto next_round
        :: else -> goto release
        fi
    }
#endif

/* The trust window has passed: the client ends its session, and checks the queue afterwards. */
lost:
#ifdef FENCE
    close_fence();
#endif
    atomic {
        !beating[s];
        d_step {
            waiting[s] = 0; knows[s] = 0; knows_up[s] = 0; notified[s] = 0; notified_token[s] = 0;
            LEAVE(FOUND);
            END_SESSION(s);
            due[s] = 1
        }
        goto finished
    }

killed:
    doubt(s);
#ifdef FENCE
    close_fence();
#endif
    d_step {
        waiting[s] = 0; knows[s] = 0; knows_up[s] = 0; notified[s] = 0; notified_token[s] = 0; trust[s] = 0; dead[s] = 1;
        LEAVE(FOUND)
    }

finished:
    skip;
    d_step { g = 0; u = 0; t = 0; got = 0; whom = 0; attempt = 0; rounds = 0; connected = 0; repeated = 0; has = 0;
             given_up = 0; broken = 0 }
}

#ifdef SEVERAL
/* --- a request for two names of any kind: all or none -------------------------------------------- */

/* One name of multi_take, in the snapshot. */
#define FITS_SNAPSHOT(l) (WEIGHT(l, s) == SOLE -> FREE(l) : (sole[l] == 0 && HAS_ROOM(l, WEIGHT(l, s))))
#define BEFORE_MINE(l, c) (STANDING(l, c) && ticket[AT(l, c)] < ticket[AT(l, s)])
#define IN_TURN(l) (queued -> (ticket[AT(l, s)] != 0 && !ANY(l, BEFORE_MINE)) : !ANY(l, STANDING))

/* A sole name is compared with its token, and skipped if it is locked, since the fence of a dead holder may have it; a
 * counted one decides under its lock, and is waited for. */
inline lock_row(x_l) {
    if
    :: WEIGHT(x_l, s) == SOLE ->
        atomic {
            if
            :: LOCKABLE(x_l) && token[x_l] == tokens[x_l] -> row_locked[x_l] = 1; mine[x_l] = 1
            :: else -> got = 0; skipped = !LOCKABLE(x_l)
            fi
        }
    :: else ->
        atomic {
            LOCKABLE(x_l);
            if
            :: sole[x_l] == 0 && HAS_ROOM(x_l, WEIGHT(x_l, s)) -> row_locked[x_l] = 1; mine[x_l] = 1
            :: else -> got = 0
            fi
        }
    fi
}
inline take_locked(x_l) {
    new = token[x_l] + 1;
    if
    :: WEIGHT(x_l, s) == SOLE ->
        write_sole(x_l, s, g, new, 0);
        row_over[x_l] = 0; row_deadline[x_l] = 0; notified[s] = 0; notified_token[s] = 0
    :: else ->
        whose = WEIGHT(x_l, s);
        write_hold(x_l, s, g, new, whose);
        whose = 0;
        told(x_l, g, new);
        due[AT(x_l, s)] = 1     /* there may be room behind it */
    fi;
    new = 0;
    NO_ENTRY(x_l, s);
    check_sum(x_l)
}
inline multi_take() {
    d_step {
        called[s] = 0; skipped = 0;
        got = LIVE(s) && FITS_SNAPSHOT(0) && FITS_SNAPSHOT(1) && IN_TURN(0) && IN_TURN(1);
        tokens[0] = (got -> token[0] : 0); tokens[1] = (got -> token[1] : 0)
    }
    if
    :: got ->
#ifdef WRONG_PASSES     /* a pass for each kind: first what is sole */
        if
        :: WEIGHT(1, s) == SOLE -> lock_row(1)
        :: else -> lock_row(0)
        fi;
        if
        :: got && mine[1] -> lock_row(0)
        :: got && !mine[1] -> lock_row(1)
        :: else
        fi;
#else
        lock_row(0);
        if
        :: got -> lock_row(1)
        :: else
        fi;
#endif
        d_step {
            if
#ifdef WRONG_PART       /* takes what it could lock */
            :: mine[0] -> take_locked(0)
#else
            :: got -> take_locked(0)
#endif
            :: else
            fi;
            if
#ifdef WRONG_PART
            :: mine[1] -> take_locked(1)
#else
            :: got -> take_locked(1)
#endif
            :: else
            fi;
            if
            :: mine[0] -> row_locked[0] = 0; mine[0] = 0
            :: else
            fi;
            if
            :: mine[1] -> row_locked[1] = 0; mine[1] = 0
            :: else
            fi;
            part = !got && (sole[0] == s || hold[AT(0, s)] != 0 || sole[1] == s || hold[AT(1, s)] != 0);
            assert(!part);
            tokens[0] = 0; tokens[1] = 0
        }
    :: else
    fi
}
inline release_one(x_l) {
    d_step { mode[AT(x_l, s)] = 0 }
    if
    :: WEIGHT(x_l, s) == SOLE -> hand_over(x_l, s, g, got, whom)
    :: else -> give(x_l, s, g, got)
    fi;
    d_step { due[AT(x_l, s)] = due[AT(x_l, s)] || (got && whom == 0); got = 0; whom = 0 }
}

proctype both(byte s) {
    STATEMENT;
    byte g, whom, rounds;
    byte tokens[2];
    bit mine[2], got, queued, skipped;

#ifdef HELD
    d_step { g = 8 * s + 1; rounds = 1 }
    goto enqueue;
#else
    d_step { there[s] = 1; expires[s] = FAR; trust[s] = 1 }
#endif
next_round:
    skip;
    atomic {
        if
        :: !trust[s] -> goto lost
        :: trust[s] && rounds == ROUNDS -> goto finished
        :: else
        fi;
        d_step { rounds++; g = 8 * s + rounds; queued = 0 }
    }
    multi_take();
    if
    :: got -> goto granted
    :: else
    fi;
enqueue:
    skip;
    /* One ticket in all queues. */
#ifdef WRONG_SPLIT      /* one for each */
    d_step { ticket[AT(0, s)] = next_ticket; place[AT(0, s)] = g; next_ticket++ }
    d_step { ticket[AT(1, s)] = next_ticket; place[AT(1, s)] = g; next_ticket++; queued = 1 }
#else
    d_step { whom = next_ticket; next_ticket++ }
    d_step {
        ticket[AT(0, s)] = whom; place[AT(0, s)] = g; ticket[AT(1, s)] = whom; place[AT(1, s)] = g; whom = 0; queued = 1
    }
#endif
    multi_take();
    if
    :: got -> goto granted
    :: else ->
        /* The check that follows an enqueue: what is before it may be served. */
        d_step { due[AT(0, s)] = due[AT(0, s)] || SERVABLE(0); due[AT(1, s)] = due[AT(1, s)] || SERVABLE(1) }
        goto in_line
    fi;
again:
    multi_take();
    if
    :: got -> goto granted
    :: else
    fi;
in_line:
    if
    :: called[s] -> goto again
    :: !trust[s] -> goto lost
    /* A poll: the row that it skipped is not locked any more. */
    :: skipped && LOCKABLE(0) && LOCKABLE(1) -> goto again
    :: atomic { cancels > 0 ->
                d_step {
                    cancels--;
                    NO_ENTRY(0, s); NO_ENTRY(1, s); due[AT(0, s)] = 1; due[AT(1, s)] = 1
                }
                goto next_round }
    :: end_expired(0, s); goto in_line
    :: end_expired(1, s); goto in_line
    :: d_step { POLLED(0, s) -> due[AT(0, s)] = 1 }; goto in_line
    :: d_step { POLLED(1, s) -> due[AT(1, s)] = 1 }; goto in_line
    fi;
granted:
    atomic {
        if
        :: !trust[s] -> goto lost
        :: else
        fi;
        got = 0;
        whose = (WEIGHT(0, s) < ROOM -> WEIGHT(0, s) : ROOM);
        believe(0, s, whose);
        whose = (WEIGHT(1, s) < ROOM -> WEIGHT(1, s) : ROOM);
        believe(1, s, whose);
        whose = 0
    }
    release_one(0);
    release_one(1);
    goto next_round;
lost:
    skip;
    d_step {
        called[s] = 0;
        END_SESSION(s);
        due[AT(0, s)] = 1; due[AT(1, s)] = 1
    }
finished:
    skip;
    d_step { g = 0; got = 0; queued = 0; skipped = 0; rounds = 0; broken = 0 }
}
#endif

/* The thread of the waiter loop, as far as it serves other waiters. */
proctype waiter_loop(byte s; byte l) {
    STATEMENT;
end:
    do
    :: atomic { due[AT(l, s)] && !dead[s] && !SERVABLE(l) -> due[AT(l, s)] = 0 }    /* checks, without effect */
    :: d_step { due[AT(l, s)] && !dead[s] && SERVABLE(l) -> due[AT(l, s)] = 0; at_work[AT(l, s)] = 1 }
        serve(l);
        at_work[AT(l, s)] = 0
    od
}

inline tick(who) {
    d_step {
        there[who] && !ended[who] && expires[who] == FAR && (dead[who] || lapses > 0) ->
        if
        :: !dead[who] -> lapses--
        :: else
        fi;
        expires[who] = NEAR; trust[who] = 0;
        mode[AT(0, who)] = 0;
        mode[AT(NAMES - 1, who)] = 0
    }
}

/* The database's clock, and with it the client's watchdog. */
proctype clock(byte s) {
end:
    do
    :: tick(s)
    :: d_step { there[s] && !ended[s] && expires[s] == NEAR -> expires[s] = PAST }
    od
}

#if BEATS > 0
/* heartbeat. The clock is read after the row is locked. */
proctype heartbeat(byte s) {
    bit alive;
    byte e;
end:
    do
    :: d_step { beats > 0 && trust[s] && !dead[s] && !beating[s] ->
                beats--; beating[s] = 1; alive = LIVE(s); e = EPOCH }
        d_step {
            if
            :: INTACT && alive ->
                expires[s] = FAR;
                revived = ended[s] || robbed[s];
                assert(!revived);
                FLUSH
            :: else
            fi;
            if
            :: INTACT -> beating[s] = 0
            :: else
            fi
        }
        if
        :: !alive && INTACT ->
            d_step {
                trust[s] = 0;
                mode[AT(HOME, s)] = 0
            }
        :: else
        fi;
        d_step { alive = 0; e = 0 }
    od
}
#endif

#ifdef CRASH
/* The server is killed once and restarts. All locks are released, statements in flight are lost. SOON: at once. */
proctype crash() {
    byte i;
    d_step {
        present[0] = d_present; token[0] = d_token; sole[0] = d_sole; grant[0] = d_grant; used[0] = d_used;
        promised[0] = d_promised; served[0] = d_served; floor = d_floor; settled = d_settled;
        row_deadline[0] = d_row_deadline; row_over[0] = d_row_over;
        row_fenced[0] = 0;
        i = 1;
        do
        :: i <= CLIENTS ->
            there[i] = d_there[i]; ended[i] = d_ended[i]; ticket[i] = d_ticket[i]; place[i] = d_place[i]; base[i] = d_base[i];
            more[i] = d_more[i]; hold[i] = d_hold[i]; hgrant[i] = d_hgrant[i]; htoken[i] = d_htoken[i];
            deadline[i] = d_deadline[i]; over[i] = d_over[i];
            hold_locked[i] = 0; hold_shared[i] = 0; fmode[i] = 0;
            beating[i] = 0; running[i] = 0; older[i] = 0;
            i++
        :: else -> break
        od;
        i = 0;
        epoch++
    }
}

/* A client's heartbeat thread after a reconnect: src/lock/session/upkeep.cpp, compare_with_database. Queue entries
 * first. */
proctype upkeep(byte s) {
    STATEMENT;
    byte held, row, up;
    bit freed, stray, doubtful;
    byte whom;
end:
    epoch > 0;
compare:
    skip;
    d_step {
        held = (mode[AT(HOME, s)] != 0 -> knows[s] : 0);
        if
        :: trust[s] && ticket[AT(HOME, s)] != 0 && place[AT(HOME, s)] != (UP(HOME, s) -> knows_up[s] : knows[s]) ->
            NO_ENTRY(HOME, s); due[s] = 1;
            FLUSH
        :: else
        fi
    }
    d_step {
        row = ((trust[s] && present[HOME] && sole[HOME] == s) -> grant[HOME] : 0);
        row = ((trust[s] && row == 0 && hold[AT(HOME, s)] != 0) -> hgrant[AT(HOME, s)] : row);
        up = ((trust[s] && hold[AT(HOME, s)] != 0 && IS_UPGRADED(HOME)) -> grant[HOME] : 0)
    }
    d_step {
        stray = trust[s] && row != 0 && row != knows[s];
        up = ((trust[s] && up != knows_up[s]) -> up : 0);
        doubtful = trust[s] && row != 0 && row == knows[s] && row != held
    }
#ifndef WRONG_7     /* the rows are not compared, and the lost release is not repeated */
    if
    :: stray ->
        give(HOME, s, row, freed);
        if
        :: !freed -> hand_over(HOME, s, row, freed, whom)
        :: else
        fi;
        if
        :: freed && whom == 0 -> due[s] = 1
        :: else
        fi
    :: else
    fi;
    if
    :: up != 0 -> end_upgrade(HOME, s, up, 0, 0, freed); due[s] = due[s] || freed
    :: else
    fi;
    atomic {
        LOCKABLE(HOME);
        d_step {
            if
            :: more[AT(HOME, s)] != 0 ->
                LESS(HOME, more[AT(HOME, s)]);
                due[s] = 1;
                more[AT(HOME, s)] = 0;
                check_sum(HOME)
            :: else
            fi
        }
    }
#endif
    d_step {
        if
        :: held != 0 && row != held && mode[AT(HOME, s)] != 0 && knows[s] == held -> mode[AT(HOME, s)] = 0
        :: else
        fi;
        held = 0; freed = 0; whom = 0; up = 0
    }
#ifndef WRONG_COMPARE_ONCE  /* known, but not held: a release may have been in flight */
    if
    :: doubtful ->
        (knows[s] != row || mode[AT(HOME, s)] != 0 || !trust[s]);
        row = 0;
        goto compare
    :: else
    fi;
#endif
    d_step { row = 0; stray = 0; doubtful = 0; broken = 0 }
}
#endif

#ifdef REAPER
#ifdef WRONG_16_FLOOR   /* the floor is not raised before a row is deleted */
#define UNDER_FLOOR true
#else
#define UNDER_FLOOR (token[HOME] + LEFT_OUT(HOME, 0) <= settled)
#endif
#define IDLE (sole[HOME] == 0 && used[HOME] == 0)
/* src/upkeep/reaping.cpp */
proctype reaper() {
    STATEMENT;
    byte round, s;
    do
    :: round == 3 -> break
    :: else ->
        round++;
        d_step {    /* sessions that have expired */
            s = 1;
            do
            :: s <= CLIENTS ->
                if
                :: there[s] && !ended[s] && expires[s] == PAST && !beating[s] -> END_SESSION(s)
                :: else
                fi;
                s++
            :: else -> break
            od;
            s = 0
        }
        serve(HOME);
        skip;
        d_step {    /* dead sole holders, holds, entries */
            if
            :: LOCKABLE(HOME) && present[HOME] && SOLE_DEAD(HOME) -> FREED(HOME)
            :: else
            fi;
            s = 1;
            do
            :: s <= CLIENTS ->
                if
                :: SWEEPABLE(HOME, s) && LOCKABLE(HOME) -> LESS(HOME, hold[AT(HOME, s)]); NO_HOLD(HOME, s)
                :: else
                fi;
                if
                :: ticket[AT(HOME, s)] != 0 && ended[s] -> NO_ENTRY(HOME, s)
                :: else
                fi;
                s++
            :: else -> break
            od;
            s = 0;
            check_sum(HOME)
        }
        /* Ended sessions that nothing names, and then they are deleted. */
        d_step {
            i = 1;
            do
            :: i <= CLIENTS ->
                seen[i] = there[i] && ended[i] && ticket[AT(HOME, i)] == 0 && sole[HOME] != i && hold[AT(HOME, i)] == 0;
                i++
            :: else -> break
            od;
            i = 0
        }
        d_step {
            i = 1;
            do
            :: i <= CLIENTS ->
                there[i] = there[i] && !seen[i];
                seen[i] = 0;
                i++
            :: else -> break
            od;
            i = 0
        }
        d_step {    /* settle_floor: no statement from before the raise still runs */
            i = 1; pick = 0;
            do
            :: i <= CLIENTS -> pick = pick + older[i]; i++
            :: else -> break
            od;
            i = 0;
#ifdef WRONG_16_GRACE
            pick = 0;
#endif
            if
            :: pick == 0 -> settled = floor
            :: else -> pick = 0
            fi;
            FLUSH
        }
        d_step {    /* reap: entries as the snapshot shows them, */
            i = 1; s_waited = 0;
            do
            :: i <= CLIENTS -> s_waited = s_waited || ticket[AT(HOME, i)] != 0; i++
            :: else -> break
            od;
            i = 0; s_row = made[HOME];
#ifdef WRONG_REAP   /* and what is held as the snapshot shows it, with no look at the row once it is locked */
            s_mine = present[HOME] && IDLE
#endif
        }
        d_step {    /* the row as it is once it is locked */
            if
#ifdef WRONG_REAP
            :: !s_waited && s_mine && LOCKABLE(HOME) && present[HOME] && made[HOME] == s_row ->
#else
            :: !s_waited && LOCKABLE(HOME) && present[HOME] && made[HOME] == s_row && IDLE && UNDER_FLOOR ->
#endif
                FREED(HOME);
                present[HOME] = 0; token[HOME] = 0; promised[HOME] = 0; served[HOME] = 0; used[HOME] = 0;
                check_sum(HOME)
            :: else
            fi;
            s_waited = 0; s_mine = 0; s_row = 0
        }
        d_step {    /* idle rows, raise_floor */
            if
            :: settled == floor && present[HOME] && IDLE && !UNDER_FLOOR ->
                floor = token[HOME] + LEFT_OUT(HOME, 0);
                i = 1;
                do
                :: i <= CLIENTS -> older[i] = running[i]; i++
                :: else -> break
                od;
                i = 0;
                FLUSH
            :: else
            fi
        }
    od
}
#endif

#if defined(FORCE) || defined(REQUEST)
#ifndef VICTIM
#define VICTIM 1
#endif
/* An operator ends what VICTIM has, or asks for it: its hold alone, also if that is upgraded, or the sole holder in the row;
 * then the session, in one transaction. Belief in it ends with a forced end as well (its one exception); a client gives up
 * what is asked for before its deadline passes. */
proctype operator_() {
    STATEMENT;
    bit counted;
    if
    :: atomic { hold[AT(HOME, VICTIM)] != 0 && !hold_locked[AT(HOME, VICTIM)] && hold_shared[AT(HOME, VICTIM)] == 0 ->
                hold_locked[AT(HOME, VICTIM)] = 1; counted = 1 }
    :: hold[AT(HOME, VICTIM)] == 0 && sole[HOME] == VICTIM
    :: true -> goto away
    fi;
    atomic {
        LOCKABLE(HOME) || !(sole[HOME] == VICTIM);
        d_step {
#ifdef FORCE
            over[AT(HOME, VICTIM)] = counted;
            row_over[HOME] = sole[HOME] == VICTIM;
            if
            :: counted || sole[HOME] == VICTIM -> taken_away[VICTIM] = 1; mode[AT(HOME, VICTIM)] = 0
            :: else
            fi;
#else
            deadline[AT(HOME, VICTIM)] = counted;
            row_deadline[HOME] = sole[HOME] == VICTIM;
#endif
            hold_locked[AT(HOME, VICTIM)] = 0;
            ok = counted || sole[HOME] == VICTIM;
            counted = 0;
            FLUSH
        }
    }
#ifdef REQUEST
    if
    :: ok ->
        d_step { taken_away[VICTIM] = 1; mode[AT(HOME, VICTIM)] = 0 }
        d_step {
            over[AT(HOME, VICTIM)] = over[AT(HOME, VICTIM)] || deadline[AT(HOME, VICTIM)];
            row_over[HOME] = row_over[HOME] || row_deadline[HOME];
            FLUSH
        }
    :: else
    fi;
#endif
    ok = 0;
    serve(HOME);
away:
    skip
}
#endif

#ifdef SEMAPHORE
/* create_semaphore: a free row without tickets. R3: the token rises. Whoever has put an entry there beside it is told, and
 * finds that the name is a semaphore's. */
proctype creator() {
    STATEMENT;
    byte any;
    d_step {
        read_rows(HOME);
        i = 1;
        do
        :: i <= CLIENTS -> any = any + ticket[i]; i++
        :: else -> break
        od;
        i = 0
    }
    atomic {
        LOCKABLE(HOME);
        d_step {
            if
            :: any == 0 && (!present[HOME] || (sole[HOME] == 0 && used[HOME] == 0)) ->
                semaphore = 1;
                made[HOME] = (present[HOME] -> made[HOME] : made[HOME] + 1);
#ifdef WRONG_R3
                token[HOME] = ABOVE(token[HOME], s_floor);
#else
                token[HOME] = ABOVE(token[HOME], s_floor) + 1 + LEFT_OUT(HOME, 0);
#endif
                present[HOME] = 1; promised[HOME] = 0;
                check_sum(HOME)
            :: else
            fi;
            any = 0;
            forget_rows()
        }
    }
#ifndef WRONG_UNTOLD
    d_step {
        i = 1;
        do
        :: i <= CLIENTS -> called[i] = semaphore && ticket[i] != 0; i++
        :: else -> break
        od;
        i = 0
    }
#endif
}
#endif

init {
    byte s;
    atomic {
#ifdef CHAIN
        /* On disk: 3 holds, and the next token is reserved for 1. Then 3 passed on to 1, asynchronously, with a promise to
         * the next if that is sole, and 1 was notified. Now 3 asks again. */
        d_step {
            s = 1;
            do
            :: s <= CLIENTS -> there[s] = 1; expires[s] = FAR; trust[s] = 1; s++
            :: else -> break
            od;
#ifdef LEFT
            expires[3] = PAST; trust[3] = 0; dead[3] = 1;
#endif
            present[0] = 1; token[0] = 1; sole[0] = 3; grant[0] = 25; promised[0] = PROMISED_TO(9);
            place[1] = 9; knows[1] = 9;
            place[2] = 17; knows[2] = 17; waiting[2] = 1; next_ticket = 4;
#ifdef BEFORE
            ticket[1] = 3; ticket[2] = 2
#else
            ticket[1] = 2; ticket[2] = 3
#endif
        }
        d_step { FLUSH }
        d_step {
            ticket[1] = 0; place[1] = 0;
            token[0] = 2; sole[0] = 1; grant[0] = 9; promised[0] = (WANT(2) == SOLE -> PROMISED_TO(17) : 0);
            top[0] = 2; top_grant[0] = 9; mode[1] = ROOM
        }
#elif defined(HELD)
        d_step {
            present[0] = 1; token[0] = 1; top[0] = 1; top_grant[0] = 9; made[0] = 1;
            if
            :: C1 == BOTH -> token[0] = 0; top[0] = 0; top_grant[0] = 0
            :: C1 == SOLE -> sole[0] = 1; grant[0] = 9; mode[1] = ROOM
            :: else -> hold[1] = C1; hgrant[1] = 9; htoken[1] = 1; used[0] = C1; mode[1] = C1
            fi;
            s = 1;
            do
            :: s <= CLIENTS -> there[s] = 1; expires[s] = FAR; trust[s] = 1; knows[s] = 8 * s + 1; s++
            :: else -> break
            od;
#ifdef QUEUED
            ticket[1] = 1; place[1] = 10; base[1] = 9; knows_up[1] = 10; knows[2] = 0; due[2] = 1
#endif
        }
#endif
#ifdef SEVERAL
        d_step { present[0] = 1; made[0] = 1; present[1] = 1; made[1] = 1 }
#endif
#ifndef CHAIN
        d_step { FLUSH }
#endif
#ifdef SOON
        run crash();
        epoch == 1;
#endif
        s = 1;
        do
#ifdef LEFT
        :: s == 3 -> s++
        :: s <= CLIENTS && s != 3 ->
#else
        :: s <= CLIENTS ->
#endif
#ifdef SEVERAL
            if
            :: WANT(s) == BOTH -> run both(s); run waiter_loop(s, 1)
            :: else -> run client(s)
            fi;
#else
            run client(s);
#endif
            run waiter_loop(s, 0);
            run clock(s);
#if BEATS > 0
            run heartbeat(s);
#endif
#ifdef CRASH
            run upkeep(s);
#endif
            s++
        :: else -> break
        od;
        s = 0;
#if defined(CRASH) && !defined(SOON)
        run crash();
#endif
#ifdef REAPER
        run reaper();
#endif
#ifdef SEMAPHORE
        run creator();
#endif
#if defined(FORCE) || defined(REQUEST)
        run operator_()
#endif
    }
}

#ifdef SERVED
/* Under weak fairness: every waiter is notified, or learns that its session is lost. */
ltl served { [] (waiting[CLIENTS] -> <> !waiting[CLIENTS]) }
#endif
