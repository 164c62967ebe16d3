/* The fast lane of scan.py: runs of the two lines that make up most of a predictor's statistics.
 *
 * Optional: fastline.py has what stands in for it. logline.py reads every wording there is. A line that is taken here
 * gives the same event; one that is not quite as expected, or whose figures disagree, is left to it.
 *
 * Figures are integers of their last printed digit until an event is made of them. Up to 2^53, dividing such an integer
 * by a power of ten gives the same double as reading the decimal does.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    LONGEST_LINE = 4096,
    MOST_POSITIONS = LONGEST_LINE / (sizeof("0.000, ") - 1),
    TIMESTAMP = sizeof("00-00 00:00:00") - 1,
};
static const int64_t LARGEST_EXACT = INT64_C(1) << 53;

/* --- What stands in a line ---------------------------------------------------------------------------------------- */

typedef struct {
    const char *at, *end;
} Cursor;

#define SAYS(cursor, words) says(cursor, words, sizeof(words) - 1)

static bool says(Cursor *line, const char *words, size_t length)
{
    if ((size_t)(line->end - line->at) < length || memcmp(line->at, words, length) != 0) {
        return false;
    }
    line->at += length;
    return true;
}

static bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

static bool is_capital(char byte) { return byte >= 'A' && byte <= 'Z'; }

static bool is_word(char byte)
{
    return is_digit(byte) || is_capital(byte) || (byte >= 'a' && byte <= 'z') || byte == '_';
}

static bool is_module(char byte) { return is_word(byte) || byte == '/'; }

static bool is_colour(char byte) { return is_digit(byte) || byte == ';'; }

/* 1 to ``most`` bytes of one kind, and no more of that kind. */
static bool some(Cursor *line, bool (*is_one)(char), int most)
{
    const char *first = line->at;
    while (line->at < line->end && is_one(*line->at)) {
        line->at++;
    }
    return line->at > first && line->at - first <= most;
}

/* Without needless zeros in front. ``most`` is below 19, so that it cannot overflow. */
static bool integer(Cursor *line, int most, int64_t *value)
{
    const char *first = line->at;
    if (!some(line, is_digit, most) || (*first == '0' && line->at - first > 1)) {
        return false;
    }
    *value = 0;
    for (const char *digit = first; digit < line->at; digit++) {
        *value = *value * 10 + (*digit - '0');
    }
    return *value <= LARGEST_EXACT;
}

/* A number with exactly so many ``places``, in units of the last of them. */
static bool decimal(Cursor *line, int most, int places, int64_t *value)
{
    if (!integer(line, most, value) || !SAYS(line, ".")) {
        return false;
    }
    for (; places > 0; places--, line->at++) {
        if (line->at == line->end || !is_digit(*line->at)) {
            return false;
        }
        *value = *value * 10 + (*line->at - '0');
    }
    return *value <= LARGEST_EXACT && (line->at == line->end || !is_digit(*line->at));
}

static bool ends(Cursor *line)
{
    (void)SAYS(line, "\r");
    return line->at == line->end;
}

typedef struct {
    const char *process; /* NULL where the line names none */
    Py_ssize_t process_length;
    int64_t pid;
    const char *timestamp;
} Header;

/* 0.10.1-0.15.1 colour the process in files, too. */
static bool colour(Cursor *line)
{
    return !SAYS(line, "\x1b[") || (some(line, is_colour, 8) && SAYS(line, "m"));
}

static bool read_writer(Cursor *line, Header *header)
{
    header->process = NULL;
    if (line->at < line->end && is_capital(*line->at)) {
        return true;
    }
    if (!colour(line) || !SAYS(line, "(")) {
        return false;
    }
    header->process = line->at;
    if (line->at == line->end || !is_capital(*line->at) || !some(line, is_word, 64)) {
        return false;
    }
    header->process_length = line->at - header->process;
    return SAYS(line, " pid=") && integer(line, 10, &header->pid) && SAYS(line, ")") && colour(line) && SAYS(line, " ");
}

static bool read_timestamp(Cursor *line, Header *header)
{
    header->timestamp = line->at;
    for (const char *shape = "00-00 00:00:00"; *shape; shape++, line->at++) {
        if (line->at == line->end || (*shape == '0' ? !is_digit(*line->at) : *line->at != *shape)) {
            return false;
        }
    }
    return true;
}

/* "[loggers.py:257]". Loggers of requests carry users' text. */
static bool read_source(Cursor *line)
{
    static const char OF_REQUESTS[] = "logger";
    const size_t length = sizeof(OF_REQUESTS) - 1;
    const char *name = line->at + 1;
    int64_t number;
    return SAYS(line, "[") && some(line, is_module, 100)
        && !((size_t)(line->at - name) >= length && memcmp(line->at - length, OF_REQUESTS, length) == 0)
        && SAYS(line, ".py:") && integer(line, 6, &number) && SAYS(line, "]");
}

static bool read_header(Cursor *line, Header *header)
{
    return read_writer(line, header) && (SAYS(line, "INFO ") || SAYS(line, "DEBUG ")) && read_timestamp(line, header)
        && SAYS(line, " ") && read_source(line) && SAYS(line, " ");
}

/* --- The two lines ------------------------------------------------------------------------------------------------ */

typedef struct {
    Header header;
    int64_t length, accepted_rate, drafted_rate; /* hundredths */
    int64_t accepted, drafted;
    int64_t rate; /* tenths of a percent */
    int positions;
    int64_t shares[MOST_POSITIONS]; /* thousandths */
} Drafts;

/* Whether the figures of one line tell the same story. What rounding leaves undecided is not for here. */
static bool agree(const Drafts *drafts)
{
    if (drafts->drafted == 0 || drafts->accepted > drafts->drafted) {
        return false;
    }
    int64_t previous = 1000, sum = 0;
    for (int i = 0; i < drafts->positions; i++) {
        if (drafts->shares[i] > previous) {
            return false;
        }
        previous = drafts->shares[i];
        sum += previous;
    }
    const int64_t length_apart = 20 * drafts->length - 2000 - 2 * sum, slack = 10 + drafts->positions;
    const double percent = 100 * ((double)drafts->accepted / (double)drafts->drafted);
    const double rate_apart = (double)drafts->rate / 10 - percent;
    return -slack < length_apart && length_apart < slack && -0.05 <= rate_apart && rate_apart <= 0.05;
}

static bool read_shares(Cursor *line, Drafts *drafts)
{
    drafts->positions = 0;
    do {
        if (drafts->positions == MOST_POSITIONS || !decimal(line, 1, 3, &drafts->shares[drafts->positions])) {
            return false;
        }
        drafts->positions++;
    } while (SAYS(line, ", ") && line->at < line->end && is_digit(*line->at));
    return true;
}

static bool read_drafts(Cursor line, Drafts *drafts)
{
    return read_header(&line, &drafts->header)
        && SAYS(&line, "SpecDecoding metrics: Mean acceptance length: ") && decimal(&line, 9, 2, &drafts->length)
        && SAYS(&line, ", Accepted throughput: ") && decimal(&line, 15, 2, &drafts->accepted_rate)
        && SAYS(&line, " tokens/s, Drafted throughput: ") && decimal(&line, 15, 2, &drafts->drafted_rate)
        && SAYS(&line, " tokens/s, Accepted: ") && integer(&line, 15, &drafts->accepted)
        && SAYS(&line, " tokens, Drafted: ") && integer(&line, 15, &drafts->drafted)
        && SAYS(&line, " tokens, Per-position acceptance rate: ") && read_shares(&line, drafts)
        && SAYS(&line, "Avg Draft acceptance rate: ") && decimal(&line, 3, 1, &drafts->rate)
        && SAYS(&line, "%") && ends(&line) && agree(drafts);
}

typedef struct {
    Header header;
    const char *engine;
    Py_ssize_t engine_length;
    int64_t prompt_rate, generation_rate; /* tenths */
    int64_t running, waiting;
    int64_t usage, hits; /* tenths of a percent; hits -1 where the line does not tell */
} Stats;

static bool read_engine(Cursor *line, Stats *stats)
{
    stats->engine = line->at;
    if (!some(line, is_digit, 6)) {
        return false;
    }
    stats->engine_length = line->at - stats->engine;
    return true;
}

static bool read_hits(Cursor *line, Stats *stats)
{
    stats->hits = -1;
    return !SAYS(line, ", Prefix cache hit rate: ") || (decimal(line, 3, 1, &stats->hits) && SAYS(line, "%"));
}

static bool read_stats(Cursor line, Stats *stats)
{
    return read_header(&line, &stats->header) && SAYS(&line, "Engine ") && read_engine(&line, stats)
        && SAYS(&line, ": Avg prompt throughput: ") && decimal(&line, 15, 1, &stats->prompt_rate)
        && SAYS(&line, " tokens/s, Avg generation throughput: ") && decimal(&line, 15, 1, &stats->generation_rate)
        && SAYS(&line, " tokens/s, Running: ") && integer(&line, 15, &stats->running)
        && SAYS(&line, " reqs, Waiting: ") && integer(&line, 15, &stats->waiting) && SAYS(&line, " reqs, ")
        && (SAYS(&line, "GPU") || SAYS(&line, "CPU")) && SAYS(&line, " KV cache usage: ")
        && decimal(&line, 3, 1, &stats->usage) && SAYS(&line, "%") && read_hits(&line, stats) && ends(&line);
}

/* --- Events ------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject *spec_decoding, *engine_stats;               /* the types in events.py */
    PyObject *spec_decoding_fields, *engine_stats_fields; /* names of what they are called with, in order */
    PyObject *nobody;                                     /* who wrote a line that names no process */
} State;

static const char *const SPEC_DECODING_FIELDS[] = {
    "timestamp", "engine", "process", "pid", "accepted_tokens", "draft_tokens", "acceptance_ratio",
    "mean_acceptance_length", "bonus_included", "accepted_throughput", "drafted_throughput", "per_position",
    "cumulative", "num_speculative_tokens", NULL,
};
static const char *const ENGINE_STATS_FIELDS[] = {
    "timestamp", "engine", "process", "pid", "prompt_throughput", "generation_throughput", "running", "waiting",
    "kv_cache_usage_ratio", "prefix_cache_hit_ratio", NULL,
};

/* Append ``kind(**values)``. The values are given away; one that is NULL is an error that has been raised. */
static int keep(PyObject *events, PyObject *kind, PyObject *fields, PyObject **values)
{
    bool whole = true;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(fields); i++) {
        whole = whole && values[i] != NULL;
    }
    PyObject *event = whole ? PyObject_Vectorcall(kind, values, 0, fields) : NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(fields); i++) {
        Py_XDECREF(values[i]);
    }
    const int failed = event == NULL ? -1 : PyList_Append(events, event);
    Py_XDECREF(event);
    return failed;
}

/* Who wrote the line before: mostly the same process. */
typedef struct {
    Header header;
    PyObject *name_and_pid;
} Writer;

static bool is_writer(const Writer *before, const Header *header)
{
    return before->name_and_pid != NULL && before->header.process != NULL && before->header.pid == header->pid
        && before->header.process_length == header->process_length
        && memcmp(before->header.process, header->process, (size_t)header->process_length) == 0;
}

/* A borrowed reference, good until the next call. */
static PyObject *writer_of(const State *state, const Header *header, Writer *before)
{
    if (header->process == NULL) {
        return state->nobody;
    }
    if (!is_writer(before, header)) {
        Py_XSETREF(before->name_and_pid, Py_BuildValue("(s#L)", header->process, header->process_length,
                                                       (long long)header->pid));
        before->header = *header;
    }
    return before->name_and_pid;
}

static PyObject *str_of(const char *first, Py_ssize_t length) { return PyUnicode_DecodeASCII(first, length, NULL); }

static PyObject *float_of(int64_t units, int units_of_one) { return PyFloat_FromDouble((double)units / units_of_one); }

static PyObject *curve_of(const Drafts *drafts)
{
    PyObject *shares = PyTuple_New(drafts->positions);
    for (int i = 0; shares != NULL && i < drafts->positions; i++) {
        PyObject *share = float_of(drafts->shares[i], 1000);
        if (share == NULL) {
            Py_CLEAR(shares);
            break;
        }
        PyTuple_SET_ITEM(shares, i, share);
    }
    return shares;
}

/* The engine whose statistics ``writer`` printed last, which the line uses up; None where there is none. */
static PyObject *pop_engine(PyObject *engines, PyObject *writer)
{
    PyObject *engine = PyDict_GetItemWithError(engines, writer);
    if (engine == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    Py_INCREF(engine);
    if (PyDict_DelItem(engines, writer) < 0) {
        Py_CLEAR(engine);
    }
    return engine;
}

static int keep_drafts(const State *state, const Drafts *drafts, Writer *before, PyObject *engines, PyObject *events)
{
    PyObject *writer = writer_of(state, &drafts->header, before);
    if (writer == NULL) {
        return -1;
    }
    PyObject *values[] = {
        str_of(drafts->header.timestamp, TIMESTAMP),
        pop_engine(engines, writer),
        Py_NewRef(PyTuple_GET_ITEM(writer, 0)),
        Py_NewRef(PyTuple_GET_ITEM(writer, 1)),
        PyLong_FromLongLong(drafts->accepted),
        PyLong_FromLongLong(drafts->drafted),
        PyFloat_FromDouble((double)drafts->accepted / (double)drafts->drafted),
        float_of(drafts->length, 100),
        Py_NewRef(Py_True),
        float_of(drafts->accepted_rate, 100),
        float_of(drafts->drafted_rate, 100),
        curve_of(drafts),
        Py_NewRef(Py_False),
        PyLong_FromLong(drafts->positions),
    };
    return keep(events, state->spec_decoding, state->spec_decoding_fields, values);
}

static int keep_stats(const State *state, const Stats *stats, Writer *before, PyObject *engines, PyObject *events,
                      bool wanted)
{
    PyObject *writer = writer_of(state, &stats->header, before);
    PyObject *engine = str_of(stats->engine, stats->engine_length);
    int failed = writer == NULL || engine == NULL ? -1 : PyDict_SetItem(engines, writer, engine);
    if (!failed && wanted) {
        PyObject *values[] = {
            str_of(stats->header.timestamp, TIMESTAMP),
            Py_NewRef(engine),
            Py_NewRef(PyTuple_GET_ITEM(writer, 0)),
            Py_NewRef(PyTuple_GET_ITEM(writer, 1)),
            float_of(stats->prompt_rate, 10),
            float_of(stats->generation_rate, 10),
            PyLong_FromLongLong(stats->running),
            PyLong_FromLongLong(stats->waiting),
            float_of(stats->usage, 1000),
            stats->hits < 0 ? Py_NewRef(Py_None) : float_of(stats->hits, 1000),
        };
        failed = keep(events, state->engine_stats, state->engine_stats_fields, values);
    }
    Py_XDECREF(engine);
    return failed;
}

/* --- Words in a buffer -------------------------------------------------------------------------------------------- */

enum { MOST_WORDS = 4 };

typedef struct {
    const char *text;
    Py_ssize_t length;
} Word;

/* Words with one byte in common, at the same place in each. Looking for that byte is what looking for the words costs,
 * so it should be a rare one. */
typedef struct {
    Py_ssize_t common;
    int count;
    Word words[MOST_WORDS];
} Words;

#define WORD(text) {text, sizeof(text) - 1}

static bool stands(const char *at, const char *end, const Words *words)
{
    for (int i = 0; i < words->count; i++) {
        const char *text = words->words[i].text;
        const Py_ssize_t length = words->words[i].length;
        if (end - at >= length && at[length - 1] == text[length - 1] && memcmp(at, text, (size_t)length) == 0) {
            return true;
        }
    }
    return false;
}

/* The first place from ``at`` on and before ``limit`` where one of the words stands; ``limit`` if there is none. */
static const char *find(const char *at, const char *limit, const char *end, const Words *words)
{
    const char common = words->words[0].text[words->common];
    for (; limit - at > 0 && end - at > words->common; at++) {
        const Py_ssize_t room = end - at - words->common;
        const char *byte = memchr(at + words->common, common, (size_t)(limit - at < room ? limit - at : room));
        if (byte == NULL) {
            return limit;
        }
        at = byte - words->common;
        if (stands(at, end, words)) {
            return at;
        }
    }
    return limit;
}

/* --- Runs of lines ------------------------------------------------------------------------------------------------ */

/* By what lines are found. The rest of a line that was wrapped inside "SpecDecoding" still says "Drafted: ". */
enum { DRAFTS, STATS, KINDS };
static const Words ANNOUNCEMENTS[KINDS] = {
    {0, 2, {WORD("Decoding"), WORD("Drafted: ")}},
    {0, 1, {WORD("Running: ")}},
};

/* 1 where the line was taken, 0 where it is not usual, -1 for an error that has been raised. */
static int take_line(const State *state, int kind, Cursor line, Writer *before, PyObject *engines, PyObject *events,
                     bool wants_stats)
{
    Drafts drafts;
    Stats stats;
    if (line.end - line.at > LONGEST_LINE) {
        return 0;
    }
    if (kind == DRAFTS && read_drafts(line, &drafts)) {
        return keep_drafts(state, &drafts, before, engines, events) < 0 ? -1 : 1;
    }
    if (kind == STATS && read_stats(line, &stats)) {
        return keep_stats(state, &stats, before, engines, events, wants_stats) < 0 ? -1 : 1;
    }
    return 0;
}

/* Moves ``position`` on over what was taken. Returns -1 for an error that has been raised. */
static int take(const State *state, const char **position, const char *limit, const char *end, PyObject *engines,
                PyObject *events, bool wants_stats)
{
    Writer before = {.name_and_pid = NULL};
    const char *places[KINDS] = {NULL};
    int taken = 1;
    while (taken > 0) {
        for (int kind = 0; kind < KINDS; kind++) {
            if (places[kind] == NULL || places[kind] < *position) {
                places[kind] = find(*position, limit, end, &ANNOUNCEMENTS[kind]);
            }
        }
        const int nearest = places[DRAFTS] < places[STATS] ? DRAFTS : STATS;
        Cursor line = {places[nearest], places[nearest]};
        if (line.at == limit) {
            break;
        }
        while (line.at > *position && line.at[-1] != '\n') {
            line.at--;
        }
        const char *newline = memchr(line.end, '\n', (size_t)(end - line.end));
        line.end = newline == NULL ? end : newline;
        taken = take_line(state, nearest, line, &before, engines, events, wants_stats);
        *position = taken > 0 ? line.end + (newline != NULL) : line.at;
    }
    Py_XDECREF(before.name_and_pid);
    return taken < 0 ? -1 : 0;
}

PyDoc_STRVAR(take_lines_doc,
    "take_lines($module, buffer, position, limit, end, engines, events, wants_stats, /)\n--\n\n"
    "Take the usual lines of buffer[position:end] in order, as far as they are announced before limit.\n\n"
    "Appends what they say to events. Gives the place after the last one, or where a line begins that is not usual.");

static PyObject *take_lines(PyObject *module, PyObject *args)
{
    Py_buffer buffer;
    Py_ssize_t position, limit, end;
    PyObject *engines, *events;
    int wants_stats;
    if (!PyArg_ParseTuple(args, "y*nnnO!O!p:take_lines", &buffer, &position, &limit, &end, &PyDict_Type, &engines,
                          &PyList_Type, &events, &wants_stats)) {
        return NULL;
    }
    PyObject *result = NULL;
    if (0 <= position && position <= limit && limit <= end && end <= buffer.len) {
        const char *first = buffer.buf, *at = first + position;
        const State *state = PyModule_GetState(module);
        if (take(state, &at, first + limit, first + end, engines, events, wants_stats) == 0) {
            result = PyLong_FromSsize_t(at - first);
        }
    } else {
        PyErr_SetString(PyExc_ValueError, "places must be 0 <= position <= limit <= end <= len(buffer)");
    }
    PyBuffer_Release(&buffer);
    return result;
}

PyDoc_STRVAR(find_words_doc,
    "find_words($module, buffer, words, common, start, end, /)\n--\n\n"
    "The first place of any of the words in buffer[start:end], end if there is none.\n\n"
    "They have the byte at common in common, which is what is looked for.");

static PyObject *find_words(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer buffer;
    PyObject *texts;
    Words words;
    Py_ssize_t start, end;
    if (!PyArg_ParseTuple(args, "y*O!nnn:find_words", &buffer, &PyTuple_Type, &texts, &words.common, &start, &end)) {
        return NULL;
    }
    bool sound = 0 <= start && start <= end && end <= buffer.len && 0 <= words.common && PyTuple_GET_SIZE(texts) > 0
        && PyTuple_GET_SIZE(texts) <= MOST_WORDS;
    words.count = sound ? (int)PyTuple_GET_SIZE(texts) : 0;
    for (int i = 0; sound && i < words.count; i++) {
        PyObject *text = PyTuple_GET_ITEM(texts, i);
        sound = PyBytes_Check(text) && words.common < PyBytes_GET_SIZE(text)
            && PyBytes_AS_STRING(text)[words.common] == PyBytes_AS_STRING(PyTuple_GET_ITEM(texts, 0))[words.common];
        words.words[i] = sound ? (Word){PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)} : (Word){NULL, 0};
    }
    Py_ssize_t place = -1;
    if (sound) {
        const char *first = buffer.buf;
        place = find(first + start, first + end, first + end, &words) - first;
    } else {
        PyErr_SetString(PyExc_ValueError, "1 to 4 words with a byte in common, and 0 <= start <= end <= len(buffer)");
    }
    PyBuffer_Release(&buffer);
    return sound ? PyLong_FromSsize_t(place) : NULL;
}

enum { LANES = 64 };

PyDoc_STRVAR(count_lines_doc,
    "count_lines($module, buffer, end, /)\n--\n\n"
    "The number of newlines in buffer[:end]. Before Python 3.13 bytes.count looks at one byte after the other.");

static PyObject *count_lines(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer buffer;
    Py_ssize_t end, newlines = 0;
    if (!PyArg_ParseTuple(args, "y*n:count_lines", &buffer, &end)) {
        return NULL;
    }
    const char *at = buffer.buf, *last = at + (end < buffer.len ? end : buffer.len);
    while (last - at >= LANES) {
        /* Counters of one byte, side by side and for as long as they hold: compilers count many bytes at a time so. */
        uint8_t counters[LANES] = {0};
        for (int round = 0; round < UINT8_MAX && last - at >= LANES; round++, at += LANES) {
            for (int lane = 0; lane < LANES; lane++) {
                counters[lane] += at[lane] == '\n';
            }
        }
        for (int lane = 0; lane < LANES; lane++) {
            newlines += counters[lane];
        }
    }
    for (; at < last; at++) {
        newlines += *at == '\n';
    }
    PyBuffer_Release(&buffer);
    return PyLong_FromSsize_t(newlines);
}

/* --- The module --------------------------------------------------------------------------------------------------- */

static PyObject *names(const char *const *fields)
{
    Py_ssize_t count = 0;
    while (fields[count] != NULL) {
        count++;
    }
    PyObject *all = PyTuple_New(count);
    for (Py_ssize_t i = 0; all != NULL && i < count; i++) {
        PyObject *name = PyUnicode_InternFromString(fields[i]);
        if (name == NULL) {
            Py_CLEAR(all);
            break;
        }
        PyTuple_SET_ITEM(all, i, name);
    }
    return all;
}

static int begin(PyObject *module)
{
    State *state = PyModule_GetState(module);
    PyObject *events = PyImport_ImportModule("specdec_exporter.predictor.log.events");
    const bool whole = events != NULL
        && (state->spec_decoding = PyObject_GetAttrString(events, "SpecDecoding")) != NULL
        && (state->engine_stats = PyObject_GetAttrString(events, "EngineStats")) != NULL
        && (state->spec_decoding_fields = names(SPEC_DECODING_FIELDS)) != NULL
        && (state->engine_stats_fields = names(ENGINE_STATS_FIELDS)) != NULL
        && (state->nobody = PyTuple_Pack(2, Py_None, Py_None)) != NULL;
    Py_XDECREF(events);
    return whole ? 0 : -1;
}

static int visit_state(PyObject *module, visitproc visit, void *arg)
{
    const State *state = PyModule_GetState(module);
    Py_VISIT(state->spec_decoding);
    Py_VISIT(state->engine_stats);
    Py_VISIT(state->spec_decoding_fields);
    Py_VISIT(state->engine_stats_fields);
    Py_VISIT(state->nobody);
    return 0;
}

static int clear_state(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->spec_decoding);
    Py_CLEAR(state->engine_stats);
    Py_CLEAR(state->spec_decoding_fields);
    Py_CLEAR(state->engine_stats_fields);
    Py_CLEAR(state->nobody);
    return 0;
}

static void free_state(void *module) { (void)clear_state(module); }

static PyMethodDef methods[] = {
    {"take_lines", take_lines, METH_VARARGS, take_lines_doc},
    {"find_words", find_words, METH_VARARGS, find_words_doc},
    {"count_lines", count_lines, METH_VARARGS, count_lines_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, begin},
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_fastline",
    .m_doc = "Runs of the usual lines of a predictor's log.",
    .m_size = sizeof(State),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = visit_state,
    .m_clear = clear_state,
    .m_free = free_state,
};

PyMODINIT_FUNC PyInit__fastline(void) { return PyModuleDef_Init(&definition); }
