/* core/model/data_source.h - `data` of a job file: the files that training samples are read from.
 *
 *   data: text.txt
 *   data: {form: uint16, files: [a.bin, b.bin]}
 *   data: {files: [{path: web.idx, weight: 3}, {path: books.idx, weight: 1}]}
 *   data: {files: [text.txt], validation: 0.05}      # or validation: val.txt, or a list of files
 *
 * Forms (exec/data/data_file.h has their layout):
 *   bytes       any file: a byte is a token; of an image model, a pixel, with labels made from the pixels
 *   uint16      tokens of 16 bits, little-endian, without a header, as nanoGPT's prepare.py writes them
 *   uint32      the same of 32 bits
 *   llmc        token files of llm.c: a header of 256 int32, then tokens of 16 or 32 bits
 *   megatron    Megatron-LM's indexed data set, X.idx and X.bin; the path is X, X.idx or X.bin
 *   cifar10     CIFAR-10's binary version: a label and 3,072 pixels
 *   cifar100    CIFAR-100's: a coarse label, a fine label and 3,072 pixels
 *   mnist       IDX files of MNIST; the path is that of the images, and the labels lie beside it
 * Without a form it is found from the file: llmc, megatron and mnist have a magic number; any other file is bytes, except that X.bin and X.npy
 * without such a number are refused, because a file of tokens read as bytes would train without an error.
 *
 * Validation: samples that training never reads. A fraction f holds out the last round(f n) of the n samples of each file, at least one, as
 * Megatron-LM's --split does; or files of their own, of the same form.
 */
#ifndef CORE_MODEL_DATA_SOURCE_H
#define CORE_MODEL_DATA_SOURCE_H

#include "core/base/error.h"
#include "core/document/document.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct arena;

/* name, as in files */
#define DATA_FORMS(X) X(BYTES, bytes) X(UINT16, uint16) X(UINT32, uint32) X(LLMC, llmc) X(MEGATRON, megatron) X(CIFAR10, cifar10) X(CIFAR100, cifar100) X(MNIST, mnist)
enum data_form {
    DATA_AUTO,
#define X(name, text) DATA_##name,
    DATA_FORMS(X)
#undef X
        DATA_FORM_COUNT
};

struct data_file_source {
    const char *path;
    double weight; /* > 0 in every file: a part of the samples in proportion; 0 in every file: not stated */
};
struct data_source {
    enum data_form form;
    int32_t n_files; /* 0: no data */
    const struct data_file_source *files;
    int32_t n_validation; /* files of their own; 0: none */
    const struct data_file_source *validation;
    double fraction; /* held out of each of `files`, (0, 1); 0: none */
    bool held_out;   /* the samples are those held out, else the others */
};

/* `data` of the map; n_files 0 if it is absent. Relative paths start at folder, and are made absolute, because a plan that embeds the job may be
 * in another folder. ERR_INPUT. */
MUST_CHECK enum status data_source_read(struct arena *a, const struct node *root, const char *folder, struct data_source *out, struct error *err);
void data_source_write(FILE *out, const struct data_source *d, int indent); /* its line, or none */
/* One file. */
struct data_source data_source_of(struct arena *a, const char *path, enum data_form form);
/* Sets the validation part from a text: a number is the fraction, anything else a file. False: a number that is not between 0 and 1. */
bool data_source_validate(struct arena *a, struct data_source *d, const char *text);
/* The source of the validation samples; n_files 0: there are none. */
struct data_source data_source_validation(const struct data_source *d);
const char *data_form_name(enum data_form form); /* "auto" of DATA_AUTO */
extern const char *const data_form_names[]; /* NULL-ended, by enum */
bool data_form_is_of_images(enum data_form form);

#endif
