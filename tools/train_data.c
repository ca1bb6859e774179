#include "tools/train_data.h"

static enum status check_evaluation(const struct program *p, const struct run_options *o, struct error *err)
{
    if (!o->eval_every) return OK;
    if (parameter_server_by_arrival(&p->server))
        return error_set(err, ERR_USAGE, "--eval-every: workers of ssp and asp do not end a step together; evaluate a checkpoint of theirs with another plan");
    if (o->keep_kernels) return error_set(err, ERR_USAGE, "--eval-every and --kernels exclude each other: kernels of an evaluation are of no operator of the trace");
    if (!data_source_validation(&o->data).n_files)
        return error_set(err, ERR_USAGE, "--eval-every needs validation samples: --validation FILE or a fraction such as 0.05, or `validation:` in the job's `data`");
    return OK;
}

enum status train_data_choose(struct arena *a, const struct train_data *x, const struct program *p, const struct plan *plan, struct run_options *o,
                              struct error *err)
{
    if (x->data)
        o->data = data_source_of(a, x->data, (enum data_form)x->form);
    else if (plan)
        o->data = plan->job.data;
    if (!x->data && x->form) return error_set(err, ERR_USAGE, "--data-form is the form of --data FILE; that of the job's data is in its `data`");
    bool needed = !o->data.n_files && !p->pixels; /* images may be random ones */
    if (needed && plan) return error_set(err, ERR_USAGE, "no training text: expected --data FILE, or `data:` in the job");
    if (needed && p->plan_hash != 0) return error_set(err, ERR_USAGE, "no text to train on: --data FILE");
    if (x->validation && !data_source_validate(a, &o->data, x->validation))
        return error_set(err, ERR_USAGE, "--validation %s: a fraction is between 0 and 1 (a file of that name: ./%s)", x->validation, x->validation);
    o->init = x->init || !plan ? x->init : plan->job.init;
    o->config = plan ? model_config(a, &plan->job.model) : NULL;
    return check_evaluation(p, o, err);
}
