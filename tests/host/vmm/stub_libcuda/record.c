/* The record: a line a call, in the file that STUB_RECORD names; and the k-th call that STUB_FAIL makes fail. */
#include "stub.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t one_call = PTHREAD_MUTEX_INITIALIZER;
static FILE *file;
static const char *current;
static char outputs[4096];
static size_t outputs_length;

struct count {
    const char *call;
    long calls;
};
static struct count counts[256];

static long count_call(const char *call) {
    struct count *at = counts;
    while (at->call && strcmp(at->call, call)) at++;
    at->call = call;
    return ++at->calls;
}

void begin(const char *call) {
    pthread_mutex_lock(&one_call);
    if (!file) file = fopen(getenv("STUB_RECORD"), "a");
    current = call;
    outputs_length = 0;
    fputs(call, file);
}

void record(const void *bytes, size_t size) {
    fputc(' ', file);
    if (!bytes) fputs("null", file);
    for (size_t i = 0; bytes && i < size; i++) fprintf(file, "%02x", ((const unsigned char *)bytes)[i]);
    if (bytes && !size) fputc('-', file);
}

void output(const void *bytes, size_t size) {
    outputs[outputs_length++] = ' ';
    for (size_t i = 0; i < size; i++, outputs_length += 2)
        sprintf(outputs + outputs_length, "%02x", ((const unsigned char *)bytes)[i]);
}

CUresult end(CUresult code) {
    fprintf(file, " = %d%.*s\n", (int)code, (int)outputs_length, outputs);
    fflush(file);
    pthread_mutex_unlock(&one_call);
    return code;
}

/* STUB_FAIL is a list such as "cuMemMap:3:2,cuMemUnmap:1:999": call, which of its calls, code. */
static int injected(void) {
    long number = count_call(current);
    const char *at = getenv("STUB_FAIL");
    for (; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t length = strcspn(at, ":");
        if (length != strlen(current) || strncmp(at, current, length)) continue;
        char *rest;
        long which = strtol(at + length + 1, &rest, 10);
        if (which == number) return (int)strtol(rest + 1, NULL, 10);
    }
    return SUCCESS;
}

CUresult refusal(int needs) {
    int code = injected();
    if (code) return (CUresult)code;
    if (needs >= FROM_INIT && !initialised) return NOT_INITIALIZED;
    if (needs >= FROM_CONTEXT && !has_current_context()) return INVALID_CONTEXT;
    return SUCCESS;
}

long setting(const char *name, long otherwise) {
    const char *value = getenv(name);
    return value ? strtol(value, NULL, 0) : otherwise;
}

int setting_lists(const char *name, const char *word) {
    const char *at = getenv(name);
    for (; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strcspn(at, ",") == strlen(word) && !strncmp(at, word, strlen(word))) return 1;
    return 0;
}
